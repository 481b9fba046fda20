"""What importing the device SDK costs: neither torch nor scipy, nor anything of the platform or the tools."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import coterie

NEED_TORCH = {
    "coterie.learning.adapters",
    "coterie.learning.batches",
    "coterie.privacy.clipping_layers",
    "coterie.learning.torch_learner",
    "coterie.learning.training",
}
STRANGERS = {"torch", "scipy", "sklearn", "typer", "services", "coterie_api", "coterie_cli", "coterie_lab", "grpc"}
REPORT = "\nimport json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"


def modules() -> set[str]:
    """Every module of the SDK."""
    return {module.name for module in pkgutil.walk_packages(coterie.__path__, "coterie.")}


def imported_by(program: str) -> set[str]:
    """Top-level packages in memory after a fresh interpreter has run the program."""
    command = [sys.executable, "-c", program + REPORT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_importing_the_package_imports_nothing_else() -> None:
    heavy = STRANGERS | {"rich", "numpy", "httpx", "nacl", "safetensors"}
    assert not imported_by("import coterie") & heavy


def test_an_agent_is_imported_without_torch_and_scipy() -> None:
    """httpx brings rich along where it is installed, so rich is not asked for here."""
    assert not imported_by("from coterie import Agent, Platform") & STRANGERS


def test_the_platform_s_client_is_imported_without_arithmetic_and_keys() -> None:
    """Who only asks needs neither; it was a fifth of the time that importing the client took."""
    assert not imported_by("from coterie import Platform") & (STRANGERS | {"numpy", "nacl", "safetensors"})


def test_only_the_training_modules_need_torch() -> None:
    blocked = "import importlib, sys\nsys.modules.update(torch=None, sklearn=None)\n"
    rest = sorted(modules() - NEED_TORCH)
    assert {"coterie.agent.agent", "coterie.strategies.mesh", "coterie.privacy.ledger"} <= set(rest)
    imported = imported_by(f"{blocked}for name in {rest}: importlib.import_module(name)\ndel sys.modules['torch']")
    assert "scipy" not in imported


def test_training_without_torch_is_an_import_error() -> None:
    for name in NEED_TORCH & modules():
        program = (
            f"import sys\nsys.modules['torch'] = None\ntry: import {name}\nexcept ImportError: pass\nelse: sys.exit(1)"
        )
        imported_by(program)
    assert modules() >= NEED_TORCH
