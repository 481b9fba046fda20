"""Strategies are the only place that knows topologies, privacies and incentives, and both sides know the same.

The planners of topology, the strategys of devices and pricing, whose subject incentives are, know their own choices;
console and command line draw and explain them to people.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.records import WorkItem
from coterie.strategies import strategy_for
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.strategies import combinations, presets
from services.aggregation.strategies.base import Strategy
from services.gateway.wire.convert import to_json
from services.pricing.domain.incentives import MODELS, NONE
from tests.architecture.test_imports import ROOT, SERVICES, files, imports_of

AXES = ("topology", "privacy", "incentive")
COMMON_WORDS = {"none", "trust"}
"""Choices that are also words for something else: found by comparisons alone."""
VALUES = {value for axes in combinations() for value in axes} | set(presets())
HOMES = ("services/aggregation/strategies", "services/topology/planners", "clients/coterie/src/coterie/strategies")
ELSEWHERE = (
    "services/kit",
    *(f"services/{name}" for name in SERVICES if name != "pricing"),
    "clients/coterie/src/coterie",
)


def is_at_home(path: Path) -> bool:
    return any(path.is_relative_to(ROOT / home) for home in HOMES)


def branches(tree: ast.AST) -> Iterator[int]:
    """Lines that compare a topology, privacy or incentive with a choice."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(is_axis, sides)) and any(choices(side) for side in sides):
                yield node.lineno
        elif isinstance(node, ast.Match) and is_axis(node.subject):
            yield node.lineno


def is_axis(node: ast.AST) -> bool:
    """A name or attribute called like an axis, or a tuple with one in it."""
    if isinstance(node, ast.Tuple):
        return any(map(is_axis, node.elts))
    return (isinstance(node, ast.Name) and node.id in AXES) or (isinstance(node, ast.Attribute) and node.attr in AXES)


def choices(node: ast.AST) -> set[str]:
    """Choices named anywhere in an expression."""
    return {item.value for item in ast.walk(node) if isinstance(item, ast.Constant) and item.value in VALUES}


def docstrings(tree: ast.AST) -> set[ast.Constant]:
    return {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def test_only_strategies_branch_on_topology_privacy_or_incentive() -> None:
    result = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in ELSEWHERE
        for path in files(folder)
        if not is_at_home(path)
        for line in branches(ast.parse(path.read_text()))
    ]
    assert result == []


def test_a_branch_would_be_found() -> None:
    lines = (
        'if spec.topology == "star": pass',
        'if privacy in ("none", "trust"): pass',
        "if spec.rounds == 1: pass",
        'if (spec.topology, spec.privacy) != ("star", "priced"): pass',
        "if spec.topology == plan.topology: pass",
        "match item.incentive:",
        '    case "payoff": pass',
    )
    assert sorted(branches(ast.parse("\n".join(lines)))) == [1, 2, 4, 6]


def test_aggregation_names_no_choice_outside_its_strategies() -> None:
    for path in files("services/aggregation"):
        if is_at_home(path):
            continue
        tree = ast.parse(path.read_text())
        documented = docstrings(tree)
        named = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and node not in documented and node.value in VALUES - COMMON_WORDS
        }
        assert not named, f"{path} names {sorted(named)}"


def test_aggregation_knows_strategies_by_their_protocol_only() -> None:
    for path in files("services/aggregation"):
        if is_at_home(path):
            continue
        for name in imports_of(path):
            if name.startswith("services.aggregation.strategies."):
                known = name.split(".")[3]
                home = ROOT / "services/aggregation/strategies"
                is_part = (home / known).is_dir() or (home / f"{known}.py").exists()
                assert known in ("base", "roster") or not is_part, f"{path} imports {name}"


PARTS = [getattr(Strategy, name) for name in dir(Strategy) if name.endswith("_class")]


def test_strategy_is_composed_of_small_parts() -> None:
    assert len(PARTS) == 8
    for part in PARTS:
        assert len(inspect.getsourcelines(part)[0]) <= 100, f"{part.__name__} does not fit on a screen"
        assert sum(not name.startswith("_") for name in vars(part)) <= 12, part.__name__


def test_strategies_do_no_input_or_output() -> None:
    for path in files("services/aggregation/strategies"):
        for name in imports_of(path):
            assert name.split(".")[0] not in ("asyncio", "grpc", "sqlalchemy", "httpx", "time", "random"), path
            assert not name.startswith(("services.aggregation.store", "services.aggregation.rounds")), path


@pytest.mark.parametrize("axes", sorted(combinations()))
def test_every_strategy_has_a_device_half_a_planner_and_prices(axes: tuple[str, str, str]) -> None:
    topology, privacy, incentive = axes
    assert (ROOT / f"services/topology/planners/{topology}.py").exists()
    assert incentive in (NONE, *MODELS)
    documented = pb.WorkItem(topology=topology, privacy=privacy, incentive=incentive)
    assert strategy_for(WorkItem.from_json(to_json(documented)))
