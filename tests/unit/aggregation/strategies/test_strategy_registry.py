"""Tasks: which combinations of choices make sense, and why the others do not."""

import itertools

import pytest

from services.aggregation.domain.tasks import TaskSpecification, needed
from services.aggregation.errors import BadTask
from services.aggregation.strategies import combinations, complete, presets, strategy_for

PRESETS = presets()


def check_axes(topology: str, privacy: str, incentive: str) -> None:
    strategy_for(TaskSpecification("t", topology=topology, privacy=privacy, incentive=incentive))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_a_combination_that_makes_sense(preset: str) -> None:
    check_axes(*PRESETS[preset])
    digests = ("a",) * (2 if preset == "multitask" else 1)
    rounds = 1 if preset == "survey" else 3
    parameters = '{"survey": {"question": "how warm is it?", "low": 0, "high": 40}}' if preset == "survey" else "{}"
    spec = complete(
        TaskSpecification("t", preset=preset, model_digests=digests, rounds=rounds, parameters_json=parameters)
    )
    assert (spec.topology, spec.privacy, spec.incentive) == PRESETS[preset]


def test_exactly_the_sensible_combinations_pass() -> None:
    passed = set()
    for axes in itertools.product(*(set(axis) for axis in zip(*combinations(), strict=True))):
        try:
            check_axes(*axes)
        except BadTask:
            continue
        passed.add(axes)
    assert passed == {
        ("star", "none", "none"),
        ("star", "uniform", "none"),
        ("star", "none", "contribution"),
        ("star", "uniform", "contribution"),
        ("star", "priced", "stackelberg"),
        ("star", "priced", "correlated"),
        ("clusters", "none", "none"),
        ("clusters", "none", "payoff"),
        ("clusters", "uniform", "none"),
        ("clusters", "uniform", "payoff"),
        ("clusters", "trust", "none"),
        ("clusters", "trust", "payoff"),
        ("clusters", "trust", "stackelberg"),
        ("mesh", "none", "none"),
        ("mesh", "partial", "none"),
        ("cells", "none", "none"),
        ("cells", "uniform", "none"),
        ("cells", "optimised", "none"),
    }


@pytest.mark.parametrize("axes", [("ring", "none", "none"), ("star", "much", "none"), ("star", "none", "gold")])
def test_the_error_for_an_unknown_choice_lists_the_known_ones(axes: tuple[str, str, str]) -> None:
    with pytest.raises(BadTask, match="choose one of"):
        check_axes(*axes)


@pytest.mark.parametrize(
    ("participants", "quorum", "least", "expected"),
    [(10, 0.8, 1, 8), (3, 1.0, 1, 3), (3, 0.34, 1, 2), (10, 0.1, 4, 4), (5, 0.6, 1, 3), (1, 0.5, 1, 1)],
)
def test_quorums_by_hand(participants: int, quorum: float, least: int, expected: int) -> None:
    assert needed(participants, quorum, least) == expected
