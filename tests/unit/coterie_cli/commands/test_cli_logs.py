"""`coterie logs`: lines of all services in order of time, filtered; text from a device cannot control the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie_cli.commands.logs import Tails, readable
from coterie_cli.main import app


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    write(folder / "trust.log", {"timestamp": "2026-01-01T10:00:02Z", "level": "info", "event": "serving"})
    write(
        folder / "aggregation.log",
        {"timestamp": "2026-01-01T10:00:01Z", "level": "info", "event": "round.opened", "task": "tsk_1", "round": 1},
        {"timestamp": "2026-01-01T10:00:03Z", "level": "warning", "event": "slow call", "task": "tsk_1"},
        {"timestamp": "2026-01-01T10:00:04Z", "level": "info", "event": "round.opened", "task": "tsk_2", "round": 1},
    )
    return tmp_path


def write(path: Path, *lines: dict[str, object]) -> None:
    with path.open("a") as file:
        for line in lines:
            file.write(json.dumps({"service": path.stem, **line}) + "\n")


def shown(data: Path, *options: str) -> list[str]:
    result = CliRunner().invoke(app, ["logs", "--data", str(data), "--json", *options])
    assert result.exit_code == 0, result.output
    return [json.loads(line)["event"] for line in result.stdout.splitlines()]


def test_lines_of_all_services_stand_in_order_of_time(data: Path) -> None:
    assert shown(data) == ["round.opened", "serving", "slow call", "round.opened"]


def test_they_are_filtered(data: Path) -> None:
    assert shown(data, "--task", "tsk_1") == ["round.opened", "slow call"]
    assert shown(data, "--level", "warning") == ["slow call"]
    assert shown(data, "--service", "trust") == ["serving"]
    assert shown(data, "--lines", "1") == ["round.opened"]
    assert shown(data, "--lines", "0") == []


def test_following_gives_each_whole_line_once(data: Path) -> None:
    tails = Tails(data / "logs")
    assert len(tails.fresh()) == 4
    assert tails.fresh() == []
    path = data / "logs" / "trust.log"
    with path.open("a") as file:
        file.write('{"service": "trust", "event": "ha')
    assert tails.fresh() == []
    with path.open("a") as file:
        file.write('lf"}\nplain words of a library\n')
    assert [line["event"] for line in tails.fresh()] == ["half", "plain words of a library"]


def test_terminal_controls_are_shown_and_not_obeyed() -> None:
    text = readable({"event": "device.declined", "message": "no \x1b[2J\u202e room", "exception": "a\nb\x07"}).plain
    assert not {"\x1b", "\u202e", "\x07"} & set(text)
    assert "no \\x1b[2J\\u202e room" in text
    assert "a\nb" in text


def test_a_folder_without_logs_and_an_unknown_level_are_mistakes(data: Path) -> None:
    for options in (["--data", str(data / "nowhere")], ["--data", str(data), "--level", "loud"]):
        result = CliRunner().invoke(app, ["logs", *options])
        assert result.exit_code != 0
