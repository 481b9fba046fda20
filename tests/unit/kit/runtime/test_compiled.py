"""Compiled loops never outlive the sources they were made from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from services.kit.runtime.compiled import forget_stale

PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); import loop; print(loop.twice(4))"


def _answer(folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_loop_is_compiled_again_when_a_function_it_calls_has_changed(tmp_path: Path) -> None:
    called = tmp_path / "called.py"
    called.write_text("import numba\n\n@numba.njit(cache=True)\ndef one(x):\n    return x\n")
    (tmp_path / "loop.py").write_text(
        "import numba\nfrom called import one\n\n@numba.njit(cache=True)\ndef twice(x):\n    return one(x) + one(x)\n"
    )
    assert forget_stale(tmp_path, tmp_path) == 0
    assert _answer(tmp_path) == "8"
    assert forget_stale(tmp_path, tmp_path) == 0
    called.write_text("import numba\n\n@numba.njit(cache=True)\ndef one(x):\n    return 10 * x\n")
    os.utime(called, (1.0, 1.0))  # as old as a file of an image may be
    assert forget_stale(tmp_path, tmp_path) == 2
    assert _answer(tmp_path) == "80"
