"""`coterie up`: one command, and the platform and its console answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from tests.e2e.real_platform import ROOT


def test_one_command_starts_the_platform_with_its_console_and_stops_both(tmp_path: Path) -> None:
    up = ["up", "--any-ports", "--json", "--data", str(tmp_path / "data")]
    with subprocess.Popen(
        [sys.executable, "-m", "coterie_cli.main", *up],
        cwd=ROOT,
        env={**os.environ, "COTERIE_LOG_LEVEL": "WARNING"},
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
            assert "Needs a person" in page.text
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            for url in (console, document["url"]):
                try:
                    browser.get(url)
                except httpx.ConnectError:
                    continue
                raise AssertionError(f"{url} still answers")


def _first_document(process: subprocess.Popen[str]) -> str:
    """The JSON document printed once everything is up."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.rstrip() == "}" or (line.startswith("{") and line.rstrip().endswith("}")):
            break
    return "".join(lines)
