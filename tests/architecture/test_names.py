"""Modules are named after their nouns: a topology names one page on each side, a preset none. (Decision 0008.)"""

from __future__ import annotations

from pathlib import Path

from services.aggregation.strategies import combinations, presets
from tests.architecture.test_imports import ROOT, files

TOPOLOGIES = {topology for topology, _, _ in combinations()}
PRESETS = set(presets()) - TOPOLOGIES
PAGES = ("services/topology/planners", "services/aggregation/strategies", "clients/coterie/src/coterie/strategies")
DEMOS = "clients/cli/src/coterie_cli/demos"
NOUNS = {"cells"}
"""Topologies whose name is also the plural of something that is kept: a cell is a base station."""
KEEPERS = ("store", "usecases", "routes", "commands")


def misnamed(path: Path) -> bool:
    """Whether a module is called after a preset, or after a topology without being its page."""
    if path.is_relative_to(DEMOS):
        return False
    words = set(path.stem.split("_"))
    if words & PRESETS:
        return True
    if path.stem in NOUNS and path.parent.name in KEEPERS:
        return False
    is_page = path.stem in TOPOLOGIES and str(path.parent) in PAGES
    return bool(words & TOPOLOGIES) and not is_page


def test_there_are_topologies_and_presets_to_tell_apart() -> None:
    assert {"star", "clusters", "mesh", "cells"} == TOPOLOGIES
    assert {"fedavg", "market", "survey", "multitask"} <= PRESETS


def test_every_topology_has_one_page_on_each_side() -> None:
    for folder in PAGES:
        assert {topology for topology in TOPOLOGIES if (ROOT / folder / f"{topology}.py").exists()} == TOPOLOGIES


def test_no_module_is_named_after_a_preset_or_a_foreign_topology() -> None:
    folders = ("services", "clients/coterie/src", "clients/cli/src")
    result = [path.relative_to(ROOT) for folder in folders for path in files(folder)]
    assert len(result) > 300
    assert [str(path) for path in result if misnamed(path)] == []


def test_a_wrong_name_would_be_found() -> None:
    wrong = (
        "services/pricing/whatif/market.py",
        "services/aggregation/strategies/clusters_market.py",
        "services/topology/whatif/mesh.py",
        "services/topology/domain/cells.py",
        "clients/coterie/src/coterie/strategies/mesh_state.py",
    )
    right = (
        "services/aggregation/strategies/mesh.py",
        "services/topology/store/cells.py",
        "services/topology/domain/cell_noise.py",
        f"{DEMOS}/market.py",
    )
    assert [name for name in (*wrong, *right) if misnamed(Path(name))] == list(wrong)
