"""A virtual environment that holds the device SDK as it would be published, and what it declares: nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_SOURCE = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__")


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment of its own: no site packages of ours, no PYTHONPATH."""

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
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {**kept, "OMP_NUM_THREADS": "1", "COTERIE_CACHE": str(self.folder / "cache"), **more}

    def run(self, *arguments: str, cwd: Path, **more: str) -> str:
        """Runs Python to its end; what it printed."""
        return run(self.command(*arguments), cwd=cwd, environment=self.variables(**more))


def run(command: list[str], *, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def pip(*arguments: str) -> None:
    run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments])


def build_wheel(folder: Path) -> Path:
    """The SDK's wheel, from a copy of its source so that nothing built before gets in."""
    source = shutil.copytree(ROOT / "clients" / "coterie", folder / "source", ignore=NOT_SOURCE)
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    (wheel,) = folder.glob("coterie-*.whl")
    return wheel


def install(folder: Path, wheel: Path, extras: str = "") -> Environment:
    """A fresh environment with the wheel and the dependencies that it declares, at the pinned versions."""
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    made = Environment(folder)
    constraints = str(ROOT / "constraints.txt")
    options = ["--quiet", "--no-compile", "-c", constraints]
    pip("--python", str(made.python), "install", *options, f"coterie{extras} @ {wheel.as_uri()}")
    return made
