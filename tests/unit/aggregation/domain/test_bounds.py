"""How many of their claimed samples count: goldens worked by hand, and what holds whatever is claimed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.aggregation.domain.bounds import TIMES_MEDIAN, Bounds, within_share
from services.kit.rpc.parameters import BadParameters

CLAIMS = st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 5)), min_size=1, max_size=30)
SHARES = st.floats(0.05, 1.0)


def counted(claims: dict[str, int], owners: dict[str, str] | None = None, share: float = 0.25) -> dict[str, float]:
    return Bounds(share).counted(claims, owners or {device: f"own_{device}" for device in claims})


def test_a_claim_of_a_billion_counts_a_quarter() -> None:
    """c = ¼(600 + c), so c = 200, of 800."""
    claims = dict.fromkeys("abcdef", 100) | {"liar": 10**9}
    assert counted(claims) == dict.fromkeys("abcdef", 100.0) | {"liar": 200.0}


def test_with_fewer_devices_than_shares_all_count_alike() -> None:
    assert counted({"a": 300, "b": 20, "c": 50}) == dict.fromkeys("abc", 20.0)
    assert counted({"a": 7}) == {"a": 7.0}


def test_liars_who_share_the_round_among_them_are_held_by_the_median() -> None:
    """Four of ten claim a billion: a quarter each would be everything, ten times the median is what they get."""
    result = counted(dict.fromkeys("abcdef", 100) | dict.fromkeys("wxyz", 10**9))
    assert {result[liar] for liar in "wxyz"} == {TIMES_MEDIAN * 100.0}
    assert {result[honest] for honest in "abcdef"} == {100.0}


def test_an_owners_devices_count_together() -> None:
    """Six devices of one owner against six owners: 600 of 1,200 becomes c = ¼(600 + c) = 200, a sixth for each."""
    owners = {device: "own_many" if device.startswith("m") else f"own_{device}" for device in devices_of(6)}
    result = counted(dict.fromkeys(owners, 100), owners)
    assert sum(result[device] for device in owners if owners[device] == "own_many") == pytest.approx(200.0)
    assert {result[device] for device in owners if owners[device] != "own_many"} == {100.0}


def devices_of(count: int) -> list[str]:
    return [f"{kind}{number}" for kind in "hm" for number in range(count)]


@given(CLAIMS, SHARES)
def test_no_device_counts_more_than_the_share_or_an_equal_one(claims: list[tuple[int, int]], share: float) -> None:
    samples = {f"d{i}": claim for i, (claim, _) in enumerate(claims)}
    owners = {f"d{i}": f"o{owner}" for i, (_, owner) in enumerate(claims)}
    result = counted(samples, owners, share)
    total = sum(result.values())
    together: dict[str, float] = {}
    for device, owner in owners.items():
        together[owner] = together.get(owner, 0.0) + result[device]
    assert max(together.values()) <= max(share, 1 / len(together)) * total * (1 + 1e-9)
    if len(together) in (1, len(samples)):
        assert max(result.values()) <= max(share, 1 / len(samples)) * total * (1 + 1e-9)
    assert all(0.0 < result[device] <= samples[device] for device in samples)


@given(CLAIMS, SHARES)
def test_claims_within_the_bounds_count_to_the_bit(claims: list[tuple[int, int]], share: float) -> None:
    """Counting what was counted changes nothing, and a round without a claim that is too large stays as it is."""
    samples = {f"d{i}": 50 + claim % 50 for i, (claim, _) in enumerate(claims)}
    if len(samples) >= 2 / share:  # 99 of (n − 1)·50 + 99 is below 2/n
        assert counted(samples, share=share) == {device: float(claim) for device, claim in samples.items()}
    once = within_share(np.array([claim for claim, _ in claims], np.float64), share)
    np.testing.assert_allclose(within_share(once, share), once, rtol=1e-9)


@given(CLAIMS, SHARES)
def test_the_largest_are_lowered_and_no_more_than_needed(claims: list[tuple[int, int]], share: float) -> None:
    """Against bisection: the largest c with c ≤ s·Σ min(x, c)."""
    values = np.array([claim for claim, _ in claims], np.float64)
    s = max(share, 1 / len(values))
    low, high = float(values.min()), float(values.max())
    if high <= s * np.minimum(values, high).sum() * (1 + 1e-9):
        np.testing.assert_allclose(within_share(values, share), values)
        return
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if middle <= s * np.minimum(values, middle).sum() * (1 + 1e-12) else (low, middle)
    np.testing.assert_allclose(within_share(values, share), np.minimum(values, low), rtol=1e-6)


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        ({"largest_share": 0}, "above 0"),
        ({"largest_share": 1.5}, "at most 1"),
        ({"largest_share": "half"}, "must be a number"),
        ({"largest_share": True}, "must be a number"),
        ({"norm_times": 1}, "at least 2"),
        ({"norm_times": float("inf")}, "at least 2"),
        ({"share": 0.5}, "share: no such parameter.*takes: largest_share, norm_times"),
        ([], "must be a JSON object"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(bounds: object, why: str) -> None:
    with pytest.raises(BadParameters, match=why):
        Bounds.of({"bounds": bounds})


def test_a_task_that_says_nothing_gets_the_defaults() -> None:
    assert Bounds.of({}) == Bounds(0.25, 10.0)
    assert Bounds.of({"bounds": {"largest_share": 1}}) == Bounds(1.0, 10.0)


def test_an_owner_fills_a_quarter_of_a_buffer_or_as_much_as_must_be() -> None:
    """Ten updates, a quarter is two. Of three owners each must have four; who has one device leaves others more."""
    item = {f"d{n}": f"o{n}" for n in range(20)}
    bounds = Bounds()
    assert bounds.most_in_buffer(10, item) == 2
    assert bounds.most_in_buffer(10, {f"d{n}": f"o{n % 3}" for n in range(30)}) == 4
    assert bounds.most_in_buffer(10, dict.fromkeys("abcdefghij", "one")) == 10
    assert bounds.most_in_buffer(4, {"a": "x", "b": "y", "c": "z", "d": "z", "e": "z"}) == 2
    assert bounds.most_in_buffer(1, item) == 1
    assert bounds.most_in_buffer(10, item, attempt=3) == 6
    assert Bounds(largest_share=1.0).most_in_buffer(10, item) == 10


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.data())
def test_when_all_devices_deliver_every_buffer_fills(owned: list[int], data: st.DataObject) -> None:
    owners = {f"d{place}": f"o{owner}" for place, owner in enumerate(owned)}
    size = data.draw(st.integers(1, len(owned)))
    most = Bounds(data.draw(SHARES)).most_in_buffer(size, owners)
    assert sum(min(owned.count(owner), most) for owner in set(owned)) >= size
    assert 1 <= most <= size
