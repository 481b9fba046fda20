"""A task's rule as it is written: its steps, their order and their parameters."""

from __future__ import annotations

import json

import pytest

from services.aggregation.domain.rounds import Standing, Verdict, judge
from services.aggregation.domain.rules.choice import choose
from services.aggregation.domain.rules.krum import Krum
from services.aggregation.domain.rules.means import Mean, TrimmedMean, TrimmedShare
from services.aggregation.domain.rules.mixing import Bucketing, Neighbours
from services.aggregation.domain.rules.optimisers import Adaptive, Momentum
from services.aggregation.errors import BadRule, UnknownRule


def parameters_json(**parameters: object) -> str:
    return json.dumps({"rule": parameters, "privacy": {"epsilon": 1}})


def test_every_step_may_be_left_out() -> None:
    mean = choose("mean", "{}")
    assert (mean.rule.method, mean.is_mean, mean.is_plain, mean.by_trust) == (Mean(), True, True, False)
    momentum = choose("fedavgm", parameters_json(momentum=0.5))
    assert (momentum.optimiser, momentum.is_mean, momentum.is_plain) == (Momentum(1.0, 0.5), True, False)
    robust = choose("nnm+krum", parameters_json(f=3))
    assert (robust.rule.method, robust.rule.pre, robust.is_mean) == (Krum(3), Neighbours(3), False)
    assert choose("bucketing", parameters_json(size=2)).is_mean is False
    assert choose("trust", "{}").is_mean is False


def test_a_step_that_needs_f_leaves_share_to_the_other() -> None:
    both = choose("nnm+trimmed-mean", parameters_json(f=2, share=0.1))
    assert (both.rule.pre, both.rule.method) == (Neighbours(2), TrimmedShare(0.1))
    assert choose("nnm+trimmed-mean", parameters_json(f=2)).rule.method == TrimmedMean(2)
    assert choose("trimmed-mean", parameters_json(share=0.1)).rule.method == TrimmedShare(0.1)
    with pytest.raises(BadRule, match=r"parameters\.rule\.f: is missing; give a whole number at least 0"):
        choose("nnm+trimmed-mean", parameters_json(share=0.1))


def test_all_steps_together_share_their_parameters() -> None:
    whole = choose("trust+nnm+trimmed-mean+fedadam", parameters_json(f=2, tau=0.5))
    assert whole.by_trust
    assert whole.rule.method == TrimmedMean(2)
    assert whole.rule.pre == Neighbours(2)
    assert whole.optimiser == Adaptive("fedadam", 0.1, 0.9, 0.99, 0.5)
    assert whole.rule.why_not(4).startswith("f = 2 needs more than 4 updates, not 4 devices")
    assert whole.rule.why_not(5) == ""


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("", {}, "no rule ''"),
        ("trust+", {}, "no rule ''"),
        ("krums", {"f": 1}, "did you mean 'krum'"),
        ("fedadam+krum", {"f": 1}, "krum comes too late"),
        ("krum+median", {"f": 1}, "median comes too late"),
        ("krum+trust", {"f": 1}, "trust comes too late"),
        ("mean", {"f": 1}, r"parameters\.rule\.f: no such parameter; mean takes none"),
        ("krum", {}, r"parameters\.rule\.f: is missing"),
        ("krum", {"f": 10**400}, r"parameters\.rule\.f: must be a whole number"),
        ("centred-clipping", {"radius": 1, "centre": [0]}, r"parameters\.rule\.centre: no such parameter"),
        (
            "fedadam",
            {"tau": 1e200},
            r"parameters\.rule\.tau: must be a number above 0 and at most 1e\+150, not 1e\+200",
        ),
        ("fedadam", {"tau": "small"}, r"parameters\.rule\.tau: must be a number above 0 .*not 'small'"),
    ],
)
def test_a_senseless_parameter_is_refused_with_its_place(name: str, parameters: dict[str, object], words: str) -> None:
    with pytest.raises((BadRule, UnknownRule), match=words):
        choose(name, parameters_json(**parameters))


def test_buckets_differ_by_round_and_are_alike_on_every_replica() -> None:
    choice = choose("bucketing+median", parameters_json(size=2))
    seeds = set()
    for number in range(1, 20):
        pre = choice.of_round(7, number).pre
        assert isinstance(pre, Bucketing)
        seeds.add(pre.seed)
        assert choice.of_round(7, number).pre == pre
    assert len(seeds) == 19
    assert choice.of_round(8, 1).pre != choice.of_round(7, 1).pre


def test_a_quorum_that_the_rule_cannot_bear_is_no_quorum() -> None:
    few = Standing(3, 0, 3, 100.0, 1, 2, unbearable="f = 2 needs more")
    assert judge(few, 0.0) is Verdict.REOPEN
    assert judge(Standing(3, 1, 3, 100.0, 1, 2, unbearable="f = 2 needs more"), 0.0) is Verdict.WAIT
    assert judge(Standing(3, 0, 3, 100.0, 2, 2, unbearable="f = 2 needs more"), 0.0) is Verdict.FAIL
    assert judge(Standing(3, 0, 3, 100.0, 1, 2), 0.0) is Verdict.CLOSE
