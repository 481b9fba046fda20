"""Choosing clerks: the specification's examples, brute force on small fleets, swaps on large ones."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.topology.domain import clerks
from services.topology.domain.clerks import NO_COMMITTEE, choose_clerks
from services.topology.errors import BadCommittee

VECTORS = json.loads((Path(__file__).parents[3] / "golden/sums/secure-sums-vectors.json").read_text())["clerks"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['clerks']}-{v['threshold']}")
def test_the_committee_of_every_vector(vector: dict[str, Any]) -> None:
    committee = choose_clerks(
        np.array(vector["trust"]),
        vector["owners"],
        vector["participants"],
        vector["candidates"],
        vector["clerks"],
        vector["threshold"],
    )
    assert list(committee.clerks) == vector["answer"]["clerks"]
    assert committee.least_trust == pytest.approx(vector["answer"]["least_trust"], abs=1e-12)
    assert committee.total_trust == pytest.approx(vector["answer"]["total_trust"], abs=1e-12)


def value(trust: Any, people: list[int], committee: tuple[int, ...], threshold: int) -> tuple[float, float]:
    taus = [sorted(1.0 if i == j else trust[i][j] for j in committee)[threshold - 1] for i in people]
    return min(taus), sum(taus)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(3, 7), st.sampled_from([(3, 2), (2, 2), (4, 2), (4, 3)]))
def test_no_committee_is_better_and_no_equal_one_comes_first(
    data: st.DataObject, devices: int, size: tuple[int, int]
) -> None:
    """Brute force; trust in tenths, so that ties are common and sums exact to 1e-9."""
    row = st.lists(st.integers(0, 10).map(lambda tenth: tenth / 10), min_size=devices, max_size=devices)
    trust = data.draw(st.lists(row, min_size=devices, max_size=devices))
    owners = data.draw(st.lists(st.sampled_from("abcde"), min_size=devices, max_size=devices))
    people = sorted(data.draw(st.sets(st.integers(0, devices - 1), min_size=1)))
    volunteers = data.draw(st.permutations(range(devices)))
    m, t = size
    committee = choose_clerks(np.array(trust), owners, people, volunteers, m, t)
    legal = [
        combination for combination in combinations(range(devices), m) if len({owners[j] for j in combination}) == m
    ]
    if not legal:
        assert committee == NO_COMMITTEE
        return
    ranked = sorted(legal, key=lambda clerks: ([-round(v, 6) for v in value(trust, people, clerks, t)], clerks))
    assert committee.clerks == ranked[0]
    assert (committee.least_trust, committee.total_trust) == pytest.approx(value(trust, people, ranked[0], t))


def test_swaps_find_a_committee_no_swap_betters(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    trust = random.random((14, 14)).round(2)
    owners = [f"own_{at % 9}" for at in range(14)]
    people = list(range(14))
    exact = choose_clerks(trust, owners, people, people, 4, 2)
    monkeypatch.setattr(clerks, "MOST_COMMITTEES", 10)
    swapped = choose_clerks(trust, owners, people, people, 4, 2)
    assert exact.exhaustive
    assert not swapped.exhaustive
    assert len({owners[clerk] for clerk in swapped.clerks}) == 4
    assert (exact.least_trust, exact.total_trust) >= (swapped.least_trust, swapped.total_trust)
    here = value(trust, people, swapped.clerks, 2)
    for rest in combinations(swapped.clerks, 3):
        for into in set(people) - set(swapped.clerks):
            if owners[into] not in {owners[clerk] for clerk in rest}:
                there = value(trust, people, tuple(sorted((*rest, into))), 2)
                assert there[0] <= here[0] + 1e-9
                assert there[0] < here[0] or there[1] <= here[1] + 1e-9


def test_two_hundred_devices_are_chosen_from_in_time() -> None:
    """C(200, 4) is beyond trial; swaps end."""
    random = np.random.default_rng(1)
    trust = random.random((200, 200))
    committee = choose_clerks(trust, [f"own_{at}" for at in range(200)], range(200), range(200), 4, 2)
    assert len(committee.clerks) == 4
    assert not committee.exhaustive


def test_the_number_of_committees_is_counted_without_making_them() -> None:
    groups = [[0, 1, 2], [3], [4, 5], [6]]
    assert clerks._count(groups, 3) == len(list(clerks._committees(groups, 3))) == 6 + 3 + 6 + 2


@pytest.mark.parametrize(
    ("trust", "owners", "participants", "candidates", "size"),
    [
        ([[1.0]], ["a", "b"], [0], [0], (3, 2)),
        ([[1.5]], ["a"], [0], [0], (3, 2)),
        ([[float("nan")]], ["a"], [0], [0], (3, 2)),
        ([[1.0]], ["a"], [], [0], (3, 2)),
        ([[1.0]], ["a"], [0, 0], [0], (3, 2)),
        ([[1.0]], ["a"], [0], [1], (3, 2)),
        ([[1.0]], ["a"], [0], [0], (3, 1)),
        ([[1.0]], ["a"], [0], [0], (2, 3)),
    ],
)
def test_questions_that_make_no_sense_are_refused(
    trust: Any, owners: list[str], participants: list[int], candidates: list[int], size: tuple[int, int]
) -> None:
    with pytest.raises(BadCommittee):
        choose_clerks(np.array(trust), owners, participants, candidates, *size)
