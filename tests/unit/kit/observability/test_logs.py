"""What a service's log says of an error."""

from __future__ import annotations

import subprocess
import sys

CODE = """
from services.kit.observability import logs

logs.configure("trust", text={text})
password = "correct horse"
try:
    raise RuntimeError("odd \\x1b[2J")
except RuntimeError:
    logs.get_logger().exception("it failed")
"""


def log_of(text: bool) -> str:
    return subprocess.run(
        [sys.executable, "-c", CODE.format(text=text)], capture_output=True, text=True, check=True
    ).stderr


def test_traceback_names_error_without_variable_values_or_terminal_codes() -> None:
    for text in (True, False):
        log = log_of(text)
        assert "RuntimeError: odd \\u001b[2J" in log
        assert "it failed" in log
        assert "correct horse" not in log
        assert "\x1b[2J" not in log
