"""`coterie circle`: owners add each other by invitation or by words, and the platform alone cannot add any."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coterie.agent.home import DeviceHome, DeviceIdentity, introduce
from coterie.protocol.keys import DeviceKeys
from coterie.records import KnownKeys
from coterie.records.reading import plain
from coterie.secure_sums.circle import fingerprint_words, read_invitation
from coterie_cli.commands.circle import qr_code
from coterie_cli.main import app
from tests.answers import made
from tests.e2e.stand_in import StandIn
from tests.unit.coterie_cli.test_cli_commands import MODEL, call


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn(MODEL) as server:
        yield server


def device(folder: Path, name: str, url: str = "http://127.0.0.1:1") -> DeviceHome:
    home = DeviceHome(folder / name)
    home.save_identity(DeviceIdentity(f"dev_{name}", name, f"own_{name}", url, "ck_secret"))
    return home


def ask(*arguments: str, answer: str = "") -> Any:
    result = CliRunner().invoke(app, ["circle", *arguments, "--json"], input=answer, catch_exceptions=False)
    return json.loads(result.stdout[result.stdout.index("{") :])


def words_of(home: DeviceHome) -> str:
    return fingerprint_words(home.keys().public().signing)


def publish_keys(stand_in: StandIn, home: DeviceHome, keys: DeviceKeys | None = None) -> None:
    """Let the platform know a device, with wrong keys if given."""
    identity, public = home.identity(), (keys or home.keys()).public()
    assert identity is not None
    known = made(KnownKeys, id=identity.id, owner_id=identity.owner_id)
    known = replace(known, signing_key=public.signing, sealing_key=public.sealing)
    stand_in.known[identity.id] = plain(known)


def test_owners_add_each_other_by_the_invitation_each_shows(tmp_path: Path) -> None:
    ada, bob = device(tmp_path, "ada"), device(tmp_path, "bob")
    shown = ask("show", "--home", str(bob.folder))
    assert (shown["members"], shown["this_device"]["words"]) == ([], words_of(bob))
    broken = "\n".join(re.findall(".{1,80}", shown["this_device"]["invitation"]))  # as a narrow terminal shows it
    added = ask("add", broken, "--home", str(ada.folder))
    assert (added["device"], added["words"]) == ("dev_bob", words_of(bob))
    (member,) = ask("show", "--home", str(ada.folder))["members"]
    assert (member["device"], member["owner"], member["verified"]) == ("dev_bob", "own_bob", True)
    assert (ada.folder / "circle.json").stat().st_mode & 0o777 == 0o600
    assert ask("remove", "dev_bob", "--home", str(ada.folder))["removed"] is True
    assert ada.circle().members == {}


def test_the_qr_code_and_the_words_are_shown_in_the_terminal(tmp_path: Path) -> None:
    ada = device(tmp_path, "ada")
    shown = CliRunner().invoke(app, ["circle", "show", "--home", str(ada.folder), "--qr"]).stdout
    assert words_of(ada) in shown
    assert all(line in shown for line in qr_code(ada.invitation()).splitlines())
    assert ada.invitation() in shown.replace("\n", "")  # whole, however narrow the terminal is
    assert read_invitation(ada.invitation())[1].signing_key == ada.keys().public().signing


def test_key_from_platform_is_taken_when_owner_says_words_agree(tmp_path: Path, stand_in: StandIn) -> None:
    ada, bob = device(tmp_path, "ada", stand_in.url), device(tmp_path, "bob")
    publish_keys(stand_in, bob)
    assert ask("verify", "dev_bob", "--home", str(ada.folder), answer="y\n")["words"] == words_of(bob)
    assert ask("verify", "dev_bob", "--home", str(ada.folder))["in_circle"] is True
    assert ask("add", "dev_bob", "--words", words_of(bob), "--home", str(ada.folder))["in_circle"] is True


def test_a_key_whose_words_differ_is_not_taken(
    tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ada, bob = device(tmp_path, "ada", stand_in.url), device(tmp_path, "bob")
    publish_keys(stand_in, bob, DeviceKeys.generate())
    home = ("--home", str(ada.folder))
    assert call("circle", "add", "dev_bob", "--words", words_of(bob), *home, monkeypatch=monkeypatch) == 2
    assert "another fingerprint" in capsys.readouterr().err
    assert CliRunner().invoke(app, ["circle", "verify", "dev_bob", *home], input="n\n").exit_code != 0
    assert ada.circle().members == {}
    introduce(ada, bob)
    assert call("circle", "verify", "dev_bob", "--yes", *home, monkeypatch=monkeypatch) == 2
    assert "ANOTHER KEY" in capsys.readouterr().err
    assert ada.circle().members["dev_bob"].signing_key == bob.keys().public().signing


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("add", "hello"), "not an invitation"),
        (("remove", "dev_zoe"), "is not in the circle"),
        (("set", "--mode", "open"), "pinned or first-use"),
        (("set", "--company-least", "65"), "company_least"),
        (("show",), "holds no registered device"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    says: str,
) -> None:
    device(tmp_path, "ada")
    home = tmp_path / ("ada" if arguments != ("show",) else "empty")
    assert call("circle", *arguments, "--home", str(home), monkeypatch=monkeypatch) == 2
    message = capsys.readouterr().err
    assert says in message
    assert "Traceback" not in message


def test_its_own_invitation_and_another_key_under_a_known_id_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ada, bob, posing = (device(tmp_path, name) for name in ("ada", "bob", "posing"))
    introduce(ada, bob)
    home = ("--home", str(ada.folder))
    assert call("circle", "add", ada.invitation(), *home, monkeypatch=monkeypatch) == 2
    forged = posing.invitation().replace("dev_posing", "dev_bob")
    assert call("circle", "add", forged, *home, monkeypatch=monkeypatch) == 2
    assert "another key" in capsys.readouterr().err
    assert ada.circle().members["dev_bob"].signing_key == bob.keys().public().signing


def test_requirements_for_sums_are_stored(tmp_path: Path) -> None:
    ada = device(tmp_path, "ada")
    home = ("--home", str(ada.folder))
    settings = ask("set", "--company-least", "3", "--count", "company", "--secure-only", *home)
    assert (settings["company_least"], settings["count"], settings["secure_only"]) == (3, "company", True)
    assert ask("set", "--clear-too", *home)["company_least"] == 3
    assert (ada.circle().company_least, ada.circle().secure_only) == (3, False)
