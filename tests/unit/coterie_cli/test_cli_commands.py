"""The command line: exit codes, one line per mistake, JSON everywhere, help with examples."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from typer.main import get_command

from coterie.agent.home import DeviceHome
from coterie.agent.registration import register_device
from coterie.errors import CoterieError
from coterie.learning.training import model_bytes
from coterie.records import Round, RoundState, Task, TaskSpecification
from coterie.samples import digits_model
from coterie_cli.console import exit_on_error
from coterie_cli.live import facts_of
from coterie_cli.main import app, run
from coterie_cli.processes import CannotStart, PlatformProcesses
from coterie_cli.progress import TaskProgress
from tests.answers import made
from tests.e2e.stand_in import StandIn, problem

MODEL = b"\x02\0\0\0\0\0\0\0{}"


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn(MODEL) as server:
        yield server


def call(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of `coterie arguments`."""
    monkeypatch.setattr(sys, "argv", ["coterie", *arguments])
    with pytest.raises(SystemExit) as caught:
        run()
    return int(caught.value.code or 0)


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its path."""

    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        if hasattr(command, "commands"):
            for name, item in command.commands.items():
                yield from walk(item, f"{path} {name}")
        else:
            yield path, command

    return walk(get_command(app), "coterie")


@pytest.mark.parametrize(("path", "command"), [pytest.param(p, c, id=p) for p, c in commands()])
def test_every_command_has_help_an_example_and_json(path: str, command: Any) -> None:
    assert command.help
    assert "Example" in (command.epilog or "")
    assert path.removeprefix("coterie ").split()[0] in command.epilog
    assert any("--json" in parameter.opts for parameter in command.params)


def test_a_missing_argument_is_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("task", "create", monkeypatch=monkeypatch) == 2
    printed = capsys.readouterr().err.strip()
    assert printed == "error: Missing argument 'name'; see `coterie task create --help`"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["bogus"], "No such command"),
        (["task", "create", "x"], "give --model file.safetensors, --sample digits or --from-task"),
        (["task", "create", "x", "--model", "nowhere.safetensors"], "is not a file"),
        (["task", "create", "x", "--sample", "digits", "--training", "{"], "--training is not JSON"),
        (["task", "create", "x", "--sample", "digits", "--parameters", "[1]"], "must be a JSON object"),
        (["task", "create", "x", "--sample", "digits", "--delta", "1e-5"], "--delta belongs to --target-epsilon"),
        (["task", "create", "x", "--rounds", "0"], "greater than or equal to 1"),
        (["keys", "create", "device", "x"], "must be admin or publisher"),
        (["owners", "create", "x", "--sharing", "some"], "must be own, owners or all"),
        (["privacy", "show"], "give a device's id or --home"),
        (["privacy", "show", "--home", "nowhere"], "holds no privacy ledger"),
        (["device", "run", "--home", "nowhere", "--task", "t"], "coterie device register"),
        (["device", "register", "--home", "nowhere"], "enrolment token from an admin"),
        (["demo", "bogus"], "no demo is called 'bogus'"),
        (["certs", "--out", "x", "--name", "moon=host"], "must be service=host"),
        (["task", "list"], "no API key"),
    ],
)
def test_mistake_is_one_line_with_advice(
    arguments: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("COTERIE_API_KEY", "COTERIE_API_KEY_FILE", "COTERIE_URL", "COTERIE_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    assert call(*arguments, monkeypatch=monkeypatch) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert printed.out == ""


def test_unreachable_platform_is_a_failure_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("coterie_cli.console.CLI_PATIENCE_SECONDS", 0.0)
    assert call("task", "list", "--url", "http://127.0.0.1:9", "--key", "x", monkeypatch=monkeypatch) == 1
    assert "check the address" in capsys.readouterr().err


def test_refused_key_shows_the_platforms_message(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.faults["GET /v1/tasks"] = [problem(401, "invalid_api_key", "the API key is not known; ask an admin")]
    assert call("task", "list", "--url", stand_in.url, "--key", "x", monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == "error: the API key is not known; ask an admin\n"


def test_the_key_may_come_from_a_file(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key").write_text("ck_dev_1.x\n")
    monkeypatch.setenv("COTERIE_API_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.delenv("COTERIE_API_KEY", raising=False)
    stand_in.faults["GET /v1/tasks/{task}"] = [problem(404, "unknown_task", "no task tsk_1")]
    assert call("task", "start", "tsk_1", "--url", stand_in.url, monkeypatch=monkeypatch) == 2
    assert stand_in.requests[0][2]["authorization"] == "Bearer ck_dev_1.x"
    assert stand_in.answered("POST", "/v1/tasks/tsk_1/start") == 0


def test_registering_prints_json_and_a_second_time_changes_nothing(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["device", "register", "--home", str(tmp_path / "phone"), "--url", stand_in.url, "--json"]
    assert call(*arguments, "--token", "ct_x.y", monkeypatch=monkeypatch) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["id"], first["name"]) == ("dev_1", "phone")
    assert call(*arguments, monkeypatch=monkeypatch) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_a_device_runs_from_the_authors_file(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "import torch\nfrom coterie.samples import digits_model\n"
        "def make():\n    return digits_model(), (torch.zeros(4, 64), torch.zeros(4, dtype=torch.long))\n"
    )
    content = model_bytes(digits_model())
    stand_in.newest = hashlib.sha256(content).hexdigest()
    stand_in.blobs[stand_in.newest] = content
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "cache"))
    register_device(DeviceHome(tmp_path / "phone"), stand_in.url, "t", name="phone")
    arguments = ["device", "run", "--home", str(tmp_path / "phone"), "--task", "tiny", "--source", f"{source}:make"]
    assert call(*arguments, "--json", monkeypatch=monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == {"tsk_1": "finished"}


def test_ctrl_c_is_exit_130() -> None:
    with pytest.raises(SystemExit) as caught, exit_on_error():
        raise KeyboardInterrupt
    assert caught.value.code == 130


def test_text_from_outside_is_not_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), exit_on_error():
        raise CoterieError("a task called [red]x[/red]")
    assert "[red]x[/red]" in capsys.readouterr().err


def test_a_busy_port_is_named_before_anything_starts(tmp_path: Path, stand_in: StandIn) -> None:
    platform = PlatformProcesses.on_free_ports(tmp_path)
    platform.ports = {**platform.ports, "gateway": stand_in.port}
    with pytest.raises(CannotStart, match=f"port {stand_in.port} for gateway is in use"):
        platform.start()
    assert platform.running == {}


def test_a_missing_services_package_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CannotStart, match="make install"):
        PlatformProcesses.on_free_ports(tmp_path).start()


def test_certificates_verify_against_their_authority_and_authority_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["certs", "--out", str(tmp_path / "certs"), "--name", "trust=trust.internal", "--json"]
    assert call(*arguments, monkeypatch=monkeypatch) == 0
    made = json.loads(capsys.readouterr().out)
    authority = x509.load_pem_x509_certificate((tmp_path / "certs" / "authority" / "ca.pem").read_bytes())
    for folder in made.values():
        certificate = x509.load_pem_x509_certificate((Path(folder) / "cert.pem").read_bytes())
        certificate.verify_directly_issued_by(authority)
        assert (Path(folder) / "key.pem").stat().st_mode & 0o077 == 0
    trust = x509.load_pem_x509_certificate((Path(made["trust"]) / "cert.pem").read_bytes())
    names = trust.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "trust.internal" in names.get_values_for_type(x509.DNSName)
    assert call(*arguments, monkeypatch=monkeypatch) == 0
    assert (tmp_path / "certs" / "authority" / "ca.pem").read_bytes() == authority.public_bytes(Encoding.PEM)
    assert not list((tmp_path / "certs").glob("ca*"))


def test_bar_shows_round_quorum_accuracy_and_time_left() -> None:
    """Two of four rounds took 10 s together: 10 s are left at the second's end, 7 s three seconds later."""
    specification = made(TaskSpecification, rounds=4, min_devices=2)
    progress = TaskProgress(made(Task, specification=specification, state="running", started_at=100.0, enrolled=3))
    assert facts_of(progress, 0.0) == "3 devices enrolled, 2 needed"
    done = made(Round, attempt=1, participants=3, quorum=2, state="done", delivered=3)
    progress.rounds = {
        1: replace(done, number=1, done_at=104.0),
        2: replace(done, number=2, done_at=110.0, metrics={"accuracy": 0.875}),
        3: replace(done, number=3, state=RoundState.OPEN, delivered=1, attempt=2),
    }
    facts = facts_of(progress, 113.0)
    assert facts == "round 3/4  attempt 2  updates 1/3 (quorum 2)  accuracy 87.5% (v1)  7 s left"
