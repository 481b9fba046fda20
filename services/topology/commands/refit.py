"""Refits the quality model's constants to measured runs: `python -m services.topology refit < measured.json`.

The input is a JSON list of runs; answers and refusals are those of the what-if question `quality`.
"""

from __future__ import annotations

import json
import sys
from io import StringIO
from typing import TextIO

from services.kit.runtime import whatif
from services.topology.whatif import SOLVERS


def run(text: str, stdout: TextIO) -> int:
    """Answers the JSON list `text`; 0, or 2 with `{"error": {"reason", "message"}}` on bad input."""
    try:
        question = json.dumps({"measured": json.loads(text)})
    except ValueError:
        question = text  # refused below, with the place of the mistake in the text as it was given
    return whatif.run({"refit": SOLVERS["quality"]}, ["refit"], StringIO(question), stdout)


def main() -> int:
    """`run` on this process's own streams."""
    return run(sys.stdin.buffer.read().decode(errors="replace"), sys.stdout)
