"""A virtual environment that holds our wheels as they would be published, and what they declare: nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Environment:
    """A separate virtual environment without this project's site packages and PYTHONPATH."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        return next(self.folder.glob("lib/python*/site-packages"))

    def command(self, *arguments: str) -> list[str]:
        return [str(self.python), *arguments]

    def variables(self, **more: str) -> dict[str, str]:
        """Our environment without what would let our own packages in, with some more variables."""
        retained = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {**retained, "OMP_NUM_THREADS": "1", "COTERIE_CACHE": str(self.folder / "cache"), **more}

    def run(self, *arguments: str, cwd: Path, **more: str) -> str:
        """Runs Python to its end; what it printed."""
        return run(self.command(*arguments), cwd=cwd, environment=self.variables(**more))


def run(command: list[str], *, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def pip(*arguments: str) -> None:
    run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments])


def build(folder: Path) -> Path:
    """What `make dist` makes of this checkout, changes that are not committed included."""
    changed = run(["git", "stash", "create"]).strip()
    run([str(ROOT / "deploy" / "dist"), sys.executable, str(folder), changed or "HEAD"])
    return folder


def wheel_of(folder: Path, package: str) -> Path:
    """A package's wheel among what was built."""
    (wheel,) = folder.glob(f"{package}-*.whl")
    return wheel


def install(folder: Path, wheel: Path, extras: str = "") -> Environment:
    """A fresh environment with the wheel and the dependencies that it declares, at the pinned versions."""
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    made = Environment(folder)
    constraints = str(ROOT / "constraints.txt")
    options = ["--quiet", "--no-compile", "-c", constraints]
    pip("--python", str(made.python), "install", *options, f"coterie{extras} @ {wheel.as_uri()}")
    return made
