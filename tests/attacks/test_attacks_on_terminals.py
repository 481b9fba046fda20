"""Attacks by text: names, reasons and notes that would command the reader's terminal."""

import importlib
import io
import json
import logging
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.progress import Progress, TextColumn

from coterie.protocol.sanitise import LINES, ONE_LINE, require_sanitised, sanitise
from coterie_cli.commands.device import _SanitisingFormatter
from coterie_cli.console import Screen, table
from services.gateway import schemas
from services.gateway.schemas.base import Body
from services.kit.observability import logs
from tests.attacks.test_attacks_on_the_door import serving
from tests.contract.gateway.conftest import bearer, platform
from tests.contract.gateway.fakes import FakePlatform

__all__ = ["platform"]
CLEAR, TITLE, C1 = "\x1b[2J", "\x1b]0;owned\x07", "\x9b31m"
BIDI = "invoice\u202egpj.exe"
EVIL = [CLEAR, TITLE, C1, BIDI, "a\rb", "a\u2028b", "\x00"]
HONEST = ["Zoë's phone", "日本の電話", "هاتف", "👩‍👧 tablet", "a-b_c (2)"]


@pytest.mark.parametrize("evil", EVIL)
async def test_text_that_controls_a_terminal_is_refused_in_every_field(
    platform: FakePlatform, tmp_path: Path, evil: str
) -> None:
    async with (
        serving(platform, tmp_path) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        metrics = json.dumps({"form": "report", "weight": 1, "metrics": {evil: 1.0}})
        answers = [
            await client.post("/v1/owners", headers=bearer("admin"), json={"name": evil}),
            await client.post("/v1/keys", headers=bearer("admin"), json={"role": "publisher", "name": evil}),
            await client.post("/v1/tasks/tsk_1/rounds/1/decline", headers=bearer("device"), json={"why": evil}),
            await client.post("/v1/tasks/tsk_1/cancel", headers=bearer("admin"), json={"why": evil}),
            await client.put(
                "/v1/tasks/tsk_1/rounds/1/updates/dev_1", headers=bearer("device") | {"coterie-update": metrics}
            ),
        ]
        for field in ("name", "description", "rule"):
            task = {"name": "t", "preset": "fedavg", "rounds": 1} | {field: evil}
            answers.append(await client.post("/v1/tasks", headers=bearer("publisher"), json=task))
        assert [answer.status_code for answer in answers] == [400] * 8
        if evil != "\x00":  # which is refused before anybody looks at schemas
            assert all("control characters are not taken" in answer.text for answer in answers)
        assert {call.method for call in platform.calls} <= {"Authenticate"}


def test_no_text_of_any_request_is_taken_unread() -> None:
    """Every text that a caller sends has a pattern, or is one of few words; a new field without is found here."""
    for module in pkgutil.iter_modules(schemas.__path__):
        importlib.import_module(f"{schemas.__name__}.{module.name}")
    open_texts = {text for body in kinds_of(Body) for text in open_texts_of(body.model_json_schema(), body.__name__)}
    assert open_texts == {"NewDevice.token"}  # compared and never shown


def kinds_of(body: type[Body]) -> Iterator[type[Body]]:
    for kind in body.__subclasses__():
        yield kind
        yield from kinds_of(kind)


def open_texts_of(schema: Any, place: str) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from open_texts_of(item, place)
    if not isinstance(schema, dict) or schema.get("propertyNames", {}).get("pattern"):
        return
    if schema.get("type") == "string" and not schema.keys() & {"pattern", "enum", "const", "format"}:
        yield place
    for name, item in schema.get("properties", {}).items():
        yield from open_texts_of(item, f"{place}.{name}")
    for key in ("items", "anyOf", "additionalProperties"):
        yield from open_texts_of(schema.get(key), place)


@pytest.mark.parametrize("name", HONEST)
async def test_names_in_any_script_are_taken(platform: FakePlatform, tmp_path: Path, name: str) -> None:
    async with (
        serving(platform, tmp_path) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=bearer("admin")) as client,
    ):
        assert (await client.post("/v1/owners", json={"name": name})).status_code == 201
        lines = {"why": f"{name}\n\tand more"}
        task = {"name": name, "preset": "fedavg", "rounds": 1, "description": lines["why"]}
        assert (await client.post("/v1/tasks", json=task)).status_code == 201
        assert (await client.post("/v1/tasks/tsk_1/cancel", json=lines)).status_code == 200
    assert platform.called("CreateOwner")[0].request.name == name


def shown(printing: Any) -> str:
    """What arrives at a terminal, without the colours that the command line itself adds."""
    file = io.StringIO()
    printing(Screen(file=file, force_terminal=True, color_system=None, width=200, legacy_windows=False))
    return file.getvalue()


@pytest.mark.parametrize("evil", EVIL)
def test_the_command_line_shows_old_and_nested_text_harmless(evil: str) -> None:
    for printing in (
        lambda screen: screen.print(f"task {evil} is done", soft_wrap=True),
        lambda screen: screen.print(table(evil, ["name", evil], [[evil, evil]])),
        lambda screen: screen.print_json(json.dumps({"name": evil})),
    ):
        text = shown(printing)
        assert not set(evil) & set("\x1b\x07\x9b\u202e\r\u2028\x00") & set(text)
        assert "\\u" in text or evil == "a\rb"  # which rich leaves out by itself


def test_what_is_printed_as_json_is_still_json() -> None:
    document = {"name": BIDI + C1 + CLEAR}
    assert json.loads(shown(lambda screen: screen.print_json(json.dumps(document)))) == document


def test_a_live_bar_shows_text_harmless_and_moves_its_own_cursor() -> None:
    file = io.StringIO()
    screen = Screen(file=file, force_terminal=True, color_system=None, width=80, legacy_windows=False)
    with Progress(TextColumn("{task.description}"), console=screen) as progress:
        progress.add_task(TITLE)
        progress.refresh()
    assert "\\u001b]0" in file.getvalue()
    assert TITLE not in file.getvalue()
    assert "\x1b[" in file.getvalue()


def test_logs_on_a_terminal_and_lines_of_a_device_are_harmless() -> None:
    event = logs._sanitise(None, "warning", {"event": "refused", "reason": TITLE, "count": 3})
    assert event == {"event": "refused", "reason": "\\u001b]0;owned\\u0007", "count": 3}
    record = logging.LogRecord("coterie.agent.agent", logging.INFO, "", 0, "declined: %s", (CLEAR,), None)
    assert _SanitisingFormatter("%(message)s").format(record) == "declined: \\u001b[2J"


@given(st.text())
def test_made_harmless_is_harmless_and_harmless_text_stays_as_it_is(text: str) -> None:
    made = sanitise(text)
    assert sanitise(made) == made
    assert require_sanitised(made, lines=True) == made
    try:
        require_sanitised(text, lines=True)
    except ValueError:
        assert made != text
    else:
        assert made == text


def test_the_patterns_of_the_documents_say_what_is_checked() -> None:
    import re

    for code in range(0x3000):
        for pattern, lines in ((ONE_LINE, False), (LINES, True)):
            fits = re.fullmatch(pattern.strip("^$"), chr(code)) is not None
            try:
                require_sanitised(chr(code), lines=lines)
            except ValueError:
                assert not fits, hex(code)
            else:
                assert fits, hex(code)
