"""`coterie up`: one command, and the platform and its console answer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from coterie.version import VERSION, commit
from coterie_cli.processes import CONSOLE, SERVICES, busy_port, free_ports
from tests.e2e.collector import collector
from tests.e2e.prometheus import watch
from tests.e2e.real_platform import ROOT


def test_one_command_starts_the_platform_with_its_console_and_stops_both(tmp_path: Path) -> None:
    with collector() as traces:
        _up_and_down(tmp_path, traces.endpoint)
        asked = next(span for span in traces.seen if span.name == "GET /v1/accounts")
        assert (asked.service, asked.parent) == ("coterie-gateway", b"")
        [called] = [child for child in traces.children(asked) if child.name.endswith(".Ledger/ListAccounts")]
        [answered] = traces.children(called)
        assert (called.service, answered.service) == ("coterie-gateway", "coterie-pricing")


def _up_and_down(tmp_path: Path, traces: str) -> None:
    metrics = _ports_in_a_row()
    up = ["up", "--any-ports", "--json", "--data", str(tmp_path / "data"), "--stations", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "coterie_cli.main", *up],
        cwd=ROOT,
        env={**os.environ, "COTERIE_METRICS_PORT": str(metrics), "COTERIE_OTLP_ENDPOINT": traces},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        document = json.loads(_first_document(process))
        key = Path(document["admin_key_file"]).read_text().strip()
        with httpx.Client(trust_env=False, timeout=30.0, follow_redirects=True) as browser:
            console = document["console"]
            assert "Sign in" in browser.get(console).text
            page = browser.post(f"{console}/signin", data={"api_key": key}, headers={"Origin": console})
            assert page.status_code == 200
            assert "Needs attention" in page.text
            for number, name in enumerate(SERVICES):
                counted = browser.get(f"http://127.0.0.1:{metrics + number}/metrics").text
                assert f'coterie_build_info{{commit="{commit()}",version="{VERSION}"}}' in counted, name
            lines = [json.loads(line) for line in (tmp_path / "data" / "logs" / "trust.log").read_text().splitlines()]
            assert any(line["event"] == "serving" and line["version"] == VERSION for line in lines)
            assert _doctor(tmp_path / "data", document["url"], key) == {"ok"}
            if shutil.which("prometheus") is not None:
                numbered = enumerate((*SERVICES, CONSOLE))
                watch(browser, tmp_path / "watched", {name: metrics + number for number, name in numbered})
            assert _answers(document["url"], key)
            _is_served(browser, document["url"], key)
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            for url in (console, document["url"]):
                try:
                    browser.get(url)
                except httpx.ConnectError:
                    continue
                raise AssertionError(f"{url} still answers")


def _is_served(browser: httpx.Client, url: str, key: str) -> None:
    """The platform's one station takes a cell that is put up while it waits."""
    headers = {"Authorization": f"Bearer {key}"}
    cell = {"blocks": 2, "power_watts": 0.01, "bandwidth_hertz": 1e5, "delay_limit_seconds": 0.4, "radius_metres": 300}
    put = browser.put(f"{url}/v1/cells/roof", json={"x_metres": 0, "y_metres": 0, **cell}, headers=headers)
    assert put.status_code in (200, 201), put.text
    deadline = time.monotonic() + 60
    while not browser.get(f"{url}/v1/cells", headers=headers).json()["items"][0]["station"]:
        assert time.monotonic() < deadline, "no station took the cell"
        time.sleep(0.2)


def test_two_platforms_run_side_by_side_and_restart_a_dead_service(tmp_path: Path) -> None:
    with ExitStack() as stack:
        ports = free_ports(2)
        ups, documents = [], []
        for port in ports:  # one after the other: the second finds the first one's console port taken
            ups.append(stack.enter_context(_up(tmp_path / str(port), port)))
            documents.append(json.loads(_first_document(ups[-1])))
        assert [document["url"] for document in documents] == [f"http://127.0.0.1:{port}" for port in ports]
        assert documents[0]["console"] != documents[1]["console"]
        keys = [Path(document["admin_key_file"]).read_text().strip() for document in documents]
        asked = (documents[0]["url"], keys[0])
        assert _answers(*asked)
        again = subprocess.run(
            [sys.executable, "-m", "coterie_cli.main", "up", "--data", str(tmp_path / str(ports[0])), "--any-ports"],
            cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert again.returncode
        assert "belongs to a running platform" in again.stderr.replace("\n", " ")
        dead = _child(ups[0].pid, "services.pricing")
        os.kill(dead, signal.SIGKILL)
        wait_until(lambda: _child(ups[0].pid, "services.pricing") not in (0, dead), seconds=60)
        wait_until(lambda: _answers(*asked), seconds=90)
        assert _answers(documents[1]["url"], keys[1])


@contextmanager
def _up(data: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """A platform that is stopped in any case."""
    command = [sys.executable, "-m", "coterie_cli.main", "up", "--json", "--data", str(data), "--port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers(url: str, key: str) -> bool:
    """Whether every service of a platform answers."""
    try:
        ready = httpx.get(f"{url}/health/ready", trust_env=False, timeout=30.0)
        accounts = httpx.get(
            f"{url}/v1/accounts", trust_env=False, timeout=30.0, headers={"Authorization": f"Bearer {key}"}
        )
    except httpx.TransportError:
        return False
    return (ready.status_code, accounts.status_code) == (200, 200)


def _child(parent: int, module: str) -> int:
    """Process of a service that another started; 0 when there is none."""
    for item in Path("/proc").glob("[0-9]*"):
        try:
            command = (item / "cmdline").read_bytes().split(b"\0")
            status = (item / "status").read_text()
        except OSError:
            continue
        if module.encode() in command and f"PPid:\t{parent}\n" in status and "State:\tZ" not in status:
            return int(item.name)
    return 0


def wait_until(condition: Callable[[], bool], *, seconds: float) -> None:
    """Returns when the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.2)


def _ports_in_a_row() -> int:
    """The first of seven ports that are all free."""
    for first in range(21000, 32000, 10):
        if busy_port({str(port): port for port in range(first, first + 7)}) is None:
            return first
    raise AssertionError("no seven free ports in a row")


def _doctor(data: Path, url: str, key: str) -> set[str]:
    """The states that `coterie doctor` finds on the running platform."""
    command = [sys.executable, "-m", "coterie_cli.main", "doctor", "--data", str(data), "--url", url, "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "COTERIE_API_KEY": key}, capture_output=True, text=True, check=True
    )
    return {load["state"] for load in json.loads(done.stdout)}


def _first_document(process: subprocess.Popen[str]) -> str:
    """The JSON document printed once everything is up."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.rstrip() == "}" or (line.startswith("{") and line.rstrip().endswith("}")):
            break
    return "".join(lines)
