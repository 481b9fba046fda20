"""Who may import whom: lab → services → coterie, cli → coterie, services apart from each other, domain code pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ("trust", "topology", "pricing", "aggregation", "gateway")
IMPURE = ("asyncio", "grpc", "sqlalchemy", "httpx", "fastapi", "time", "requests", "socket", "subprocess")


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files(folder: str) -> list[Path]:
    result = sorted((ROOT / folder).rglob("*.py"))
    assert result, f"{folder} has no Python files"
    return result


@pytest.mark.parametrize(
    ("folder", "strangers"),
    [
        ("clients/coterie/src", {"services", "coterie_cli", "coterie_lab", "coterie_api", "grpc", "typer", "rich"}),
        ("clients/cli/src", {"services", "coterie_lab", "coterie_api", "grpc"}),
        ("services", {"coterie_cli", "coterie_lab"}),
    ],
)
def test_no_arrow_points_the_other_way(folder: str, strangers: set[str]) -> None:
    """lab → services → coterie and cli → coterie; the tools start services as processes and import none."""
    for path in files(folder):
        for name in imports_of(path):
            assert name.split(".")[0] not in strangers, f"{path} imports {name}"


@pytest.mark.parametrize("service", SERVICES)
def test_services_share_only_the_kit_and_pure_domains(service: str) -> None:
    """A service may use another's pure formulas (`services.<other>.domain`), never its rooms."""
    for path in files(f"services/{service}"):
        for name in imports_of(path):
            for other in set(SERVICES) - {service}:
                if name.startswith(f"services.{other}") and not name.startswith(f"services.{other}.domain"):
                    raise AssertionError(f"{path} imports {name}")


def test_the_kit_knows_no_service() -> None:
    for path in files("services/kit"):
        assert not [n for n in imports_of(path) if n.startswith("services.") and not n.startswith("services.kit")], path


@pytest.mark.parametrize("service", ["trust", "topology", "pricing", "aggregation"])
def test_domain_code_does_no_input_or_output(service: str) -> None:
    for path in files(f"services/{service}/domain"):
        for name in imports_of(path):
            assert name.split(".")[0] not in IMPURE, f"{path} imports {name}"


def test_nothing_is_ever_unpickled() -> None:
    for folder in ("services", "clients"):
        for path in files(folder):
            names = list(imports_of(path))
            assert not [n for n in names if n.split(".")[0] in ("pickle", "dill", "cloudpickle", "joblib")], path
            assert "torch.load" not in path.read_text(), path


ORDERS = {"learning/local_steps.py", "strategies/device_state.py", "samples.py", "learning/numpy_learner.py"}
"""Modules of the device that draw from numpy: the order of samples, and samples to try things with. Nothing private."""


def test_no_noise_of_a_device_comes_from_a_statistical_generator() -> None:
    """Noise has one source, `privacy.stream`; what can be drawn again is a simulation's and imported by no device."""
    package = ROOT / "clients/coterie/src/coterie"
    for path in files("clients/coterie/src/coterie"):
        place, text = path.relative_to(package).as_posix(), path.read_text()
        assert place in ORDERS or "np.random" not in text, f"{path} draws from numpy"
        if place != "privacy/simulation.py":
            assert not [name for name in imports_of(path) if "simulation" in name], f"{path} imports the simulation"


@pytest.mark.parametrize("folder", ["clients/cli/src", "services", "examples"])
def test_only_simulations_and_tests_reach_reproducible_noise(folder: str) -> None:
    """An agent takes such noise as an argument of its constructor, which nothing that people start ever gives."""
    for path in files(folder):
        text = path.read_text()
        assert "simulated_noise" not in text, path
        assert "privacy.simulation" not in text, path


def test_only_a_release_adds_noise() -> None:
    """Samplers are called by the grid, the grid by releases (and secure sums), releases by `RoundContext.release`."""
    callers = {"privacy.discrete": {"privacy/grid.py"}, "privacy.grid": {"privacy/releases.py"}}
    package = ROOT / "clients/coterie/src/coterie"
    for path in files("clients/coterie/src/coterie"):
        place = path.relative_to(package).as_posix()
        for name in imports_of(path):
            for module, allowed in callers.items():
                if name.startswith(f"coterie.{module}") and not place.startswith("secure_sums/"):
                    assert place in allowed, f"{path} imports {name}"
