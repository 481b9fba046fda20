"""Experiments over real agents: data that is dealt to them, and readings of an outcome."""

from __future__ import annotations

from math import nan

import pytest

from coterie_cli.demos.clusters import CAST
from coterie_lab import cluster_agents
from coterie_lab.cluster_agents import METHODS, Outcome, study
from coterie_lab.experiments import agents
from coterie_lab.market_agents import METHODS as MARKET_METHODS
from coterie_lab.market_agents import SPLITS

PLAIN = Outcome(
    curve=(0.1, 0.9),
    delivered=24,
    epsilons=(0.0,) * 12,
    raw=(0,) * 12,
    noised=0,
    payoff=nan,
    solo_payoff=nan,
    stable=None,
)
SOCIAL = Outcome(
    curve=(0.1, 0.8),
    delivered=24,
    epsilons=(0.0,) * 10 + (160.0, 35.64),
    raw=(2,) * 10 + (0, 0),
    noised=2,
    payoff=47.66,
    solo_payoff=32.37,
    stable=True,
)


def test_experiments_name_the_methods_that_the_runs_know() -> None:
    assert tuple(METHODS) == agents.CLUSTER_METHODS
    assert tuple(MARKET_METHODS) == agents.MARKET_METHODS
    assert tuple(SPLITS) == agents.SPLITS


@pytest.mark.parametrize(("method", "outcome"), [("FedAvg, no noise", PLAIN), ("clusters", SOCIAL)])
def test_readings_are_those_of_the_outcome(method: str, outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_agents, "run", lambda *_: outcome)
    readings = agents.clustered({"data": "digits", "method": method, "rounds": 1}, 0, None)
    values = {(item.figure, item.series): item.value for item in readings if item.x != 0.0}
    assert values["accuracy", method] == 100.0 * outcome.curve[-1]
    assert values["largest ε", method] == max(outcome.epsilons)
    assert values["raw updates", method] == (24.0 if outcome is PLAIN else 0.0)
    assert ("mean payoff", "alone") in values if outcome is SOCIAL else ("mean payoff", "alone") not in values


def test_digits_are_dealt_to_the_cast_completely() -> None:
    dealt = study("digits", None, seed=0)
    assert (len(dealt.split.shards), dealt.inputs) == (len(CAST), 64)
    assert sum(len(labels) for _, labels in dealt.split.shards) == 1438
