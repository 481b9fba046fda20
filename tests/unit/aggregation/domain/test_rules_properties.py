"""What must hold of every rule, whatever the updates."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.parameters import groups_read
from services.aggregation.domain.rules import mixing as mixing_module
from services.aggregation.domain.rules import rows as rows_module
from services.aggregation.domain.rules.axis import METHODS, rule_for
from services.aggregation.domain.rules.combining import Combination, combine
from services.aggregation.domain.rules.geometric import median
from services.aggregation.domain.rules.rows import ArrayRows
from services.aggregation.errors import BadRule, BadUpdates, BadWeights

Matrix = npt.NDArray[np.float64]
PRES = (None, "nnm", "bucketing")


def parameters_for(name: str, pre: str | None, f: int) -> dict[str, Any]:
    """Parameters that `name` and `pre` need."""
    takes = {key for kind in groups_read("rule", [name]) for key in kind.parameters()}
    result: dict[str, Any] = {"f": f} if "f" in takes else {}
    if name == "centred-clipping":
        result |= {"radius": 2.0, "iterations": 2}
    if pre == "nnm":
        result |= {"f": f}
    return result | ({"size": 2, "seed": 3} if pre == "bucketing" else {})


def run(name: str, updates: Matrix, pre: str | None = None, f: int = 1, **more: Any) -> tuple[Matrix, Combination]:
    return combine(rule_for(name, parameters_for(name, pre, f), pre), ArrayRows.of(updates), **more)


@st.composite
def clouds(draw: st.DrawFn, least: int = 5, same: bool = True) -> Matrix:
    """Some of the updates far away, some perhaps the same."""
    n, d = draw(st.integers(least, 12)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    updates = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4, size=(n, 1))
    updates[: draw(st.integers(0, n // 2 if same else 0))] = updates[-1]
    return updates


@pytest.mark.parametrize("pre", [None, "nnm"])
@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=25)
@given(updates=clouds(), data=st.data())
def test_another_order_gives_the_same_bits_from_the_same_updates(
    name: str, pre: str | None, updates: Matrix, data: st.DataObject
) -> None:
    order = np.array(data.draw(st.permutations(range(len(updates)))))
    weights = data.draw(st.sampled_from([None, np.linspace(0.5, 1.5, len(updates)), np.arange(len(updates)) % 3 + 0.0]))
    there = None if weights is None else weights[order].tolist()
    here = None if weights is None else weights.tolist()
    count = np.count_nonzero(np.ones(len(updates)) if weights is None else weights)
    if "krum" in name and (count < 4 or (pre == "nnm" and count % 2 == 0)):
        return  # true ties, which the devices' order decides: the nearest two of three, two equal halves when mixed
    plain, first = run(name, updates, pre, weights=here)
    shuffled, second = run(name, updates[order], pre, weights=there)
    assert plain.tobytes() == shuffled.tobytes()
    # Of devices with the same update one may stand for the other.
    assert sorted(updates[i].tolist() for i in first.used) == sorted(updates[order[i]].tolist() for i in second.used)


@pytest.mark.parametrize("pre", PRES)
@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=20)
@given(updates=clouds(same=False), shift=st.floats(-1e3, 1e3))
def test_shifting_all_updates_shifts_the_result(name: str, pre: str | None, updates: Matrix, shift: float) -> None:
    if (name, pre) == ("mean-around-median", "nnm"):
        return  # neighbours may become the same: which half is nearer to the middle is then a matter of rounding
    plain, _ = run(name, updates, pre)
    rule = parameters_for(name, pre, 1) | ({"centre": [shift] * updates.shape[1]} if name == "centred-clipping" else {})
    moved, _ = combine(rule_for(name, rule, pre), ArrayRows.of(updates + shift))
    scale = np.abs(updates).max() + abs(shift)
    np.testing.assert_allclose(moved - shift, plain, atol=1e-8 * scale)


@pytest.mark.parametrize("pre", PRES)
@pytest.mark.parametrize("name", [name for name in METHODS if name != "centred-clipping"])
@settings(max_examples=20)
@given(updates=clouds())
def test_no_coordinate_leaves_the_range_of_the_updates(name: str, pre: str | None, updates: Matrix) -> None:
    result, _ = run(name, updates, pre)
    slack = 1e-12 * np.abs(updates).max()
    assert (result >= updates.min(axis=0) - slack).all()
    assert (result <= updates.max(axis=0) + slack).all()


@pytest.mark.parametrize("name", ["trimmed-mean", "multi-krum", "mean-around-median"])
@given(updates=clouds())
def test_without_liars_it_is_the_mean(name: str, updates: Matrix) -> None:
    plain, _ = run("mean", updates)
    np.testing.assert_array_equal(run(name, updates, f=0)[0], plain)
    mixed, _ = run(name, updates, "nnm", f=0)
    np.testing.assert_allclose(mixed, plain, atol=1e-12 * np.abs(updates).max())


@pytest.mark.parametrize("name", [name for name in METHODS if name != "mean"])
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), far=st.floats(1e2, 1e9))
def test_two_liars_of_nine_cannot_drag_the_result_away(name: str, seed: int, far: float) -> None:
    """For any place the liars choose, the result stays within a few times the honest updates' spread."""
    rng = np.random.default_rng(seed)
    updates = rng.uniform(-1, 1, size=(9, 4))
    updates[:2] = far * rng.choice([-1, 1], size=4)
    for pre in (None, "nnm"):
        assert np.abs(run(name, updates, pre, f=2)[0]).max() <= 4.0, pre


def test_one_liar_drags_the_mean_away() -> None:
    """So that the test above means something."""
    assert run("mean", np.array([[0.0], [0.0], [1e9]]))[0][0] > 1e8


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=20)
@given(updates=clouds(), factor=st.floats(0.1, 10))
def test_equal_weights_or_trust_are_no_weights(name: str, updates: Matrix, factor: float) -> None:
    plain, first = run(name, updates)
    weighted, second = run(name, updates, weights=[factor] * len(updates), trust=[0.5] * len(updates))
    assert plain.tobytes() == weighted.tobytes()
    assert first.used == second.used


@pytest.mark.parametrize("pre", PRES)
@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=20)
@given(updates=clouds(least=6), data=st.data())
def test_a_device_without_trust_has_no_weight(name: str, pre: str | None, updates: Matrix, data: st.DataObject) -> None:
    """Whatever it sends, and however many samples it claims."""
    trust = [0.0, *np.linspace(0.3, 1.0, len(updates) - 1)]
    claim = data.draw(st.floats(0, 1e9))
    plain, first = run(name, updates, pre, weights=[1.0] * len(updates), trust=trust)
    updates[0] = data.draw(st.floats(-1e9, 1e9))
    other, second = run(name, updates, pre, weights=[claim] + [1.0] * (len(updates) - 1), trust=trust)
    assert plain.tobytes() == other.tobytes()
    assert 0 not in first.used
    assert first.set_aside[0].why == "the others give it no trust"
    assert first.set_aside == second.set_aside


@pytest.mark.parametrize("name", ["mean", "centred-clipping"])
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), trust=st.floats(0, 0.2), claim=st.floats(0.01, 1e6))
def test_a_devices_say_is_at_most_its_share_of_all_trust(name: str, seed: int, trust: float, claim: float) -> None:
    """Moving one update moves the mean by at most trust / Σ trust of the way, clipping by as much of 2·radius."""
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(8, 3))
    weights, given_trust = [1.0] * 7 + [claim], [0.9] * 7 + [trust]
    rule = rule_for(name, {"radius": 1.0, "iterations": 1} if name == "centred-clipping" else {})
    before, _ = combine(rule, ArrayRows.of(updates), weights=weights, trust=given_trust)
    moved = updates.copy()
    moved[7] += rng.normal(size=3) * 50
    after, _ = combine(rule, ArrayRows.of(moved), weights=weights, trust=given_trust)
    reach = np.linalg.norm(moved[7] - updates[7]) if name == "mean" else 2.0
    say = min(claim, trust) / (7 * 0.9 + min(claim, trust))
    assert np.linalg.norm(after - before) <= say * reach * (1 + 1e-9) + 1e-12


@settings(max_examples=20)
@given(updates=clouds(same=False), cells=st.integers(1, 60))
def test_chunks_of_any_size_give_the_same(updates: Matrix, cells: int) -> None:
    for name in METHODS:
        for pre in PRES:
            if (name, pre) == ("mean-around-median", "nnm"):
                continue  # see above
            whole, first = run(name, updates, pre)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(rows_module, "CELLS", cells)
                pieces, second = run(name, updates, pre)
            np.testing.assert_allclose(pieces, whole, atol=1e-8 * np.abs(updates).max(), err_msg=f"{name} {pre}")
            assert first.used == second.used
            assert first.set_aside == second.set_aside


@settings(max_examples=20)
@given(updates=clouds(least=6))
def test_each_device_is_either_used_or_set_aside_with_a_reason(updates: Matrix) -> None:
    for name in METHODS:
        for pre in PRES:
            _, result = run(name, updates, pre, trust=[0.0] + [1.0] * (len(updates) - 1))
            devices = [*result.used, *(item.device for item in result.set_aside)]
            assert sorted(devices) == list(range(len(updates))), (name, pre)
            assert all(item.why for item in result.set_aside)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), n=st.integers(2, 40), d=st.integers(1, 6), ties=st.booleans())
def test_the_geometric_median_is_proven(seed: int, n: int, d: int, ties: bool) -> None:
    """The gap to the least sum is bounded by the gradient: a proof that needs no second opinion."""
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 3, size=(n, d)).astype(float) if ties else rng.normal(size=(n, d))
    points = np.unique(points, axis=0)
    weights = rng.integers(1, 4, size=len(points)).astype(float) if ties else rng.uniform(0.1, 1, len(points))
    result = median(points, weights)
    assert result.gap <= 1e-9
    assert result.shares.min() >= 0
    assert result.shares.sum() == pytest.approx(1)
    here = result.shares @ points
    total = weights @ np.linalg.norm(points - here, axis=1)
    for step in rng.normal(size=(20, d)) * 10.0 ** rng.uniform(-6, 0, size=(20, 1)):
        assert weights @ np.linalg.norm(points - here - step, axis=1) >= total * (1 - 1e-12)


@pytest.mark.full
def test_memory_does_not_grow_with_the_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are made as they are read, so all memory is the rules' own: a few chunks, whatever the length."""
    n, d = 50, 50_000
    monkeypatch.setattr(rows_module, "CELLS", 1 << 16)
    monkeypatch.setattr(mixing_module, "CELLS", 1 << 16)

    class Made:
        def __init__(self, which: range | list[int]) -> None:
            self.which = list(which)

        count = property(lambda self: len(self.which))
        elements = d
        keys = property(lambda self: [bytes([i]) for i in self.which])

        def only(self, which: Any) -> Made:
            return Made([self.which[i] for i in which])

        def read(self, start: int, stop: int) -> Matrix:
            return np.sin(np.arange(start, stop) * (np.array(self.which)[:, None] + 1.0))

    for name in METHODS:
        for pre in PRES:
            rule = rule_for(name, parameters_for(name, pre, 10), pre)
            tracemalloc.start()
            run_ = Combination(rule, Made(range(n)))
            for _ in run_.chunks():
                pass
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 6e6 < n * d * 8, f"{name} {pre}: {peak / 1e6:.0f} MB"


def test_what_cannot_be_combined_is_refused_with_its_place() -> None:
    four = np.eye(4)
    with pytest.raises(BadRule, match=r"parameters\.f: .*needs more than 4 updates, not 4 devices"):
        run("krum", four, f=2)
    with pytest.raises(BadRule, match="not 2 buckets of 4 devices"):
        run("trimmed-mean", four, "bucketing", f=1)
    with pytest.raises(BadRule, match="not 2 devices"):
        run("median", four, "nnm", f=1, trust=[0, 0, 1, 1])
    with pytest.raises(BadRule, match=r"parameters\.centre: has 2 numbers, the updates have 4"):
        combine(rule_for("centred-clipping", {"radius": 1, "centre": [1, 2]}), ArrayRows.of(four))
    with pytest.raises(BadWeights, match=r"weights\.2: must be from 0 to 1e\+150, not -1"):
        run("mean", four, weights=[1, 1, -1, 1])
    with pytest.raises(BadWeights, match=r"trust\.1: must be from 0 to 1, not 1.5"):
        run("mean", four, trust=[1, 1.5, 1, 1])
    with pytest.raises(BadWeights, match=r"weights: 3 numbers for 4 updates"):
        run("mean", four, weights=[1, 1, 1])
    with pytest.raises(BadWeights, match="no device has a weight above 0"):
        run("mean", four, weights=[0, 0, 0, 0])
    with pytest.raises(BadUpdates, match="there are none"):
        run("mean", np.zeros((0, 3)))
    with pytest.raises(BadUpdates, match="too large to combine"), np.errstate(over="ignore"):
        run("mean", np.full((3, 1), 1.7e308))
