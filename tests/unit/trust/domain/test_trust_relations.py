"""Relations: each rule by hand on a few devices, joins against brute force, the published city where it is present."""

from __future__ import annotations

import gzip
import io
import itertools
import math
import os
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.records.enums import RelationKind
from coterie_lab.datasets import santander
from services.trust.domain.evidence import NO_PRIOR, Prior
from services.trust.domain.graph import Integers
from services.trust.domain.meetings import Meetings, meetings_between, meetings_within, spaced_encounters, visits
from services.trust.domain.population import InvalidPopulation, Population, Stays, matches, pairs_within, usual_places
from services.trust.domain.relations import (
    SUGGESTED,
    InvalidRelation,
    Joiners,
    Relation,
    RelationPriors,
    RelationRules,
    co_location,
    co_work,
    derive,
    friendship,
    ownership,
    parental,
    social,
    social_public,
)

HOUR = 3_600.0


def people(*rows: tuple[int, int, int, int, int, int, float, float]) -> Population:
    """Rows of (device, owner, type, brand, model, carrier, x, y)."""
    table = np.array(rows, dtype=float).reshape(-1, 8)
    device, owner, kind, brand, model, carrier = table[:, :6].astype(np.int64).T
    return Population(device, owner, kind, brand, model, carrier, table[:, 6], table[:, 7])


def rests(*rows: tuple[int, float, float, float, float]) -> Stays:
    """Rows of (carrier, start, stop, x, y)."""
    table = np.array(rows, dtype=float).reshape(-1, 5)
    return Stays(table[:, 0].astype(np.int64), table[:, 1], table[:, 2], table[:, 3], table[:, 4])


def pairs(blocks: object) -> list[tuple[int, int]]:
    return sorted((relation.a, relation.b) for block in blocks for relation in block)  # type: ignore[attr-defined]


NAN = math.nan
CITY = people(
    (1, 7, 1, 3, 4, 7, NAN, NAN),  # phone of owner 7
    (2, 7, 6, 0, 0, 0, 0.0, 0.0),  # pc at owner 7's home, make unknown
    (3, 8, 1, 3, 4, 8, NAN, NAN),  # phone of owner 8, same make as 1
    (4, 9, 1, 3, 4, 9, NAN, NAN),  # phone of owner 9, same make
    (5, 0, 14, 1, 1, 0, 1000.0, 0.0),  # street lights
    (6, 0, 14, 1, 1, 0, 1390.0, 0.0),
    (7, 0, 14, 1, 1, 0, 1800.0, 0.0),
    (8, 0, 11, 1, 1, -8, NAN, NAN),  # bus
)


def test_ownership_links_private_devices_of_an_owner_and_public_in_range() -> None:
    blocks = list(ownership(CITY))
    assert pairs(blocks) == [(1, 2), (5, 6)]
    assert [relation.because for block in blocks for relation in block] == [
        "both belong to owner 7",
        "both belong to owner 0; 390 m apart",
    ]
    assert pairs(ownership(CITY, RelationRules(public_range_metres=410.0))) == [(1, 2), (5, 6), (6, 7)]


def test_parental_needs_one_known_make_and_distance() -> None:
    stays = rests((7, 0, 9, 0.0, 0.0), (7, 9, 10, 9000.0, 0.0), (8, 0, 5, 2500.0, 0.0), (9, 0, 5, 100.0, 0.0))
    result = [relation for block in parental(CITY, stays) for relation in block]
    assert [(relation.a, relation.b) for relation in result] == [(1, 3), (3, 4)]
    assert result[0].because == "both are type 1, brand 3, model 4; 2500 m apart"
    anywhere = RelationRules(parental_distance_metres=0.0)
    expected = [(1, 3), (1, 4), (3, 4), (5, 6), (5, 7), (6, 7)]
    assert pairs(parental(CITY, stays, anywhere)) == expected


def test_device_without_location_is_never_a_distant_parent() -> None:
    nowhere = rests()
    assert pairs(parental(CITY, nowhere)) == []
    relations = [r for block in parental(CITY, nowhere, RelationRules(parental_distance_metres=0.0)) for r in block]
    assert relations[0].because == "both are type 1, brand 3, model 4"


def test_co_location_needs_more_than_the_meetings_named() -> None:
    visiting = [(8, float(k), k + 0.5, 60.0, 0.0) for k in range(14)]
    assert pairs(co_location(CITY, rests(*visiting[:13]))) == []
    (block,) = co_location(CITY, rests(*visiting))
    assert pairs([block]) == [(2, 3)]
    assert next(iter(block)).because == "one was within reach of the other's place 14 times"
    assert block.strength.tolist() == [0.5]
    vehicle = [(-8, float(k), k + 0.5, 60.0, 0.0) for k in range(20)]
    assert pairs(co_location(CITY, rests(*vehicle))) == []


def test_social_needs_three_long_meetings_far_apart_in_time() -> None:
    def meet(*starts: float, minutes: float = 30.0) -> Stays:
        return rests(
            *((who, s * HOUR, s * HOUR + minutes * 60, 50.0 * (who - 7), 0.0) for s in starts for who in (7, 8))
        )

    assert pairs(social(CITY, meet(0, 6.5, 13))) == [(1, 3)]
    assert pairs(social(CITY, meet(0, 6.4, 13))) == []  # 5 h 54 between the first two; the third is only a second
    assert pairs(social(CITY, meet(0, 6.5, 13, minutes=29))) == []
    (block,) = social(CITY, meet(0, 6.5, 13, 20))
    assert next(iter(block)).because == "their carriers met 4 times, long enough and far enough apart in time"
    assert block.strength.tolist() == [4 / 7]


def test_social_public_joins_a_vehicle_and_a_person() -> None:
    stays = rests(*((who, k * 2 * HOUR, k * 2 * HOUR + 60, 0.0, 0.0) for k in range(3) for who in (-8, 9)))
    (block,) = social_public(CITY, stays)
    assert pairs([block]) == [(4, 8)]
    assert "public vehicle" in next(iter(block)).because
    assert pairs(social(CITY, stays)) == []


def test_co_work_counts_common_tasks_once_each() -> None:
    joined = [(1, 5), (1, 5), (1, 6), (1, 9), (4, 5), (4, 6), (4, 9), (3, 5), (3, 6), (99, 5)]
    (block,) = co_work(CITY, Joiners(*np.array(joined).T))
    assert pairs([block]) == [(1, 4)]
    assert next(iter(block)).because == "they took part in 3 common tasks"


def test_friends_bring_all_their_devices() -> None:
    block = friendship(CITY, 8, 7, 0.4)
    assert pairs([block]) == [(1, 3), (2, 3)]
    assert next(iter(block)).because == "owners 8 and 7 are friends"
    assert block.strength.tolist() == [0.4, 0.4]
    for owners, strength in (((7, 7), 0.4), ((7, 8), 0.0), ((7, 8), 1.1)):
        with pytest.raises(InvalidRelation, match="two owners"):
            friendship(CITY, *owners, strength)


def test_derive_yields_every_kind_that_has_evidence() -> None:
    stays = rests(*((who, k * 7 * HOUR, k * 7 * HOUR + 1900, 10.0, 0.0) for k in range(15) for who in (7, 8, -8)))
    joiners = Joiners(np.array([1, 3] * 3), np.repeat([1, 2, 3], 2))
    kinds = {block.kind for block in derive(CITY, stays, joiners, RelationRules(parental_distance_metres=0))}
    assert kinds == set(RelationKind) - {RelationKind.FRIENDSHIP}


def test_the_strongest_relation_gives_the_prior() -> None:
    made = Relation(RelationKind.PARENTAL, 1, 2, 1.0, {})
    met = Relation(RelationKind.SOCIAL, 1, 2, 0.5, {})
    assert SUGGESTED.of([met, made]) == Prior(0.5, 5.0)
    assert SUGGESTED.of([met]) == Prior(0.3, 5.0)
    assert SUGGESTED.of([]) == NO_PRIOR
    assert RelationPriors().of([made]) == NO_PRIOR


@pytest.mark.parametrize("name", ["social_meetings", "block_pairs", "co_work_tasks"])
def test_a_rule_out_of_range_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRelation, match=name):
        RelationRules(**{name: 0})
    with pytest.raises(InvalidRelation, match="contact_radius"):
        RelationRules(contact_radius_metres=NAN)


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(1, 9))
def test_pairs_within_are_all_pairs_with_equal_labels_once(labels: list[int], block: int) -> None:
    result = [
        (min(i, j), max(i, j))
        for left, right in pairs_within(np.array(labels, dtype=np.int64), block)
        for i, j in zip(left.tolist(), right.tolist(), strict=True)
    ]
    assert sorted(result) == [
        (i, j) for i, j in itertools.combinations(range(len(labels)), 2) if labels[i] == labels[j]
    ]


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 4), max_size=5))
def test_matches_join_equal_labels(labels: list[int], wanted: list[int]) -> None:
    rows, places = matches(np.array(labels, dtype=np.int64), np.array(wanted, dtype=np.int64))
    expected = [(k, p) for k, want in enumerate(wanted) for p, label in enumerate(labels) if label == want]
    assert sorted(zip(rows.tolist(), places.tolist(), strict=True)) == expected


STAY = st.tuples(
    st.integers(1, 4),
    st.integers(0, 30).map(float),
    st.integers(0, 12).map(float),
    st.integers(0, 3),
    st.integers(0, 3),
)


def as_stays(rows: list[tuple[int, float, float, int, int]], offset: int = 0) -> Stays:
    """Hours, so that windows of three hours are crossed; positions on a lattice of 100 m."""
    return rests(
        *((who + offset, s * HOUR, (s + length) * HOUR, x * 100.0, y * 100.0) for who, s, length, x, y in rows)
    )


@given(st.lists(STAY, max_size=8), st.lists(STAY, max_size=8))
def test_meetings_equal_brute_force(
    one: list[tuple[int, float, float, int, int]], other: list[tuple[int, float, float, int, int]]
) -> None:
    ones, others = as_stays(one), as_stays(other, offset=2)

    def brute(left: Stays, right: Stays, i: int, j: int) -> tuple[float, float, float, float] | None:
        start, stop = max(left.start[i], right.start[j]), min(left.stop[i], right.stop[j])
        near = math.dist(left.places[i], right.places[j]) <= 110.0
        if not near or stop - start < HOUR or left.carriers[i] == right.carriers[j]:
            return None
        return float(left.carriers[i]), float(right.carriers[j]), float(start), float(stop)

    def listed(met: Meetings) -> list[tuple[float, float, float, float]]:
        return sorted(zip(met.a.tolist(), met.b.tolist(), met.start.tolist(), met.stop.tolist(), strict=True))

    across = [brute(ones, others, i, j) for i in range(len(ones)) for j in range(len(others))]
    assert listed(meetings_between(ones, others, 110.0, HOUR)) == sorted(filter(None, across))
    inner = [brute(ones, ones, i, j) for i, j in itertools.combinations(range(len(ones)), 2)]
    ordered = [(min(m[0], m[1]), max(m[0], m[1]), m[2], m[3]) for m in inner if m]
    assert listed(meetings_within(ones, 110.0, HOUR)) == sorted(ordered)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(1, 9)), max_size=15), st.integers(0, 20))
def test_spaced_encounters_equal_the_greedy_walk(rows: list[tuple[int, int, int]], interval: int) -> None:
    expected: Counter[int] = Counter()
    last: dict[int, int] = {}
    for pair, start, length in sorted(rows, key=lambda row: row[1]):
        if pair not in last or start - last[pair] >= interval:
            expected[pair] += 1
            last[pair] = start + length
    # Of several meetings that start together the walk takes any; keep the instances where that cannot matter.
    if len({(pair, start) for pair, start, _ in rows}) == len(rows):
        table = np.array(rows, dtype=np.int64).reshape(-1, 3)
        met = Meetings(
            table[:, 0], table[:, 0] + 10, table[:, 1].astype(float), (table[:, 1] + table[:, 2]).astype(float)
        )
        result = spaced_encounters(met, float(interval))
        assert dict(zip(result.a.tolist(), result.times.tolist(), strict=True)) == dict(expected)


@given(st.lists(STAY, max_size=10))
def test_visits_equal_brute_force(rows: list[tuple[int, float, float, int, int]]) -> None:
    stays, places = as_stays(rows), np.array([[0.0, 0.0], [150.0, 100.0]])
    result = visits(stays, places, 110.0)
    expected = Counter(
        (place, int(stays.carriers[k]))
        for place in range(2)
        for k in range(len(stays))
        if math.dist(places[place], stays.places[k]) <= 110.0
    )
    listed = zip(result.a.tolist(), result.b.tolist(), result.times.tolist(), strict=True)
    assert {(a, b): times for a, b, times in listed} == dict(expected)
    assert not len(visits(stays, np.zeros((0, 2)), 1.0).a)


def test_usual_places_are_own_or_the_longest_rest() -> None:
    places = usual_places(CITY, rests((7, 0, 2, 1.0, 1.0), (7, 5, 9, 2.0, 2.0), (50, 0, 99, 3.0, 3.0)))
    assert places[:2].tolist() == [[2.0, 2.0], [0.0, 0.0]]
    assert np.isnan(places[2]).all()


def test_columns_that_describe_nothing_are_refused() -> None:
    with pytest.raises(InvalidPopulation, match="more than once"):
        people((1, 7, 1, 3, 4, 7, NAN, NAN), (1, 8, 1, 3, 4, 8, NAN, NAN))
    with pytest.raises(InvalidPopulation, match="before it starts"):
        rests((1, 5, 4, 0, 0))
    with pytest.raises(InvalidPopulation, match="same length"):
        Stays(np.zeros(1, dtype=np.int64), np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2))


ARCHIVE = Path(os.environ.get("COTERIE_DATA", "")) / "santander_siot.tar.gz"


def derived(name: str) -> dict[tuple[int, int], int]:
    """Pairs and meetings derived from the same files by an independent program, stored in the archive."""
    with tarfile.open(ARCHIVE) as archive:
        member = archive.extractfile(f"derived/{name}")
        assert member is not None
        table = np.loadtxt(io.StringIO(gzip.decompress(member.read()).decode()), delimiter=",", skiprows=1, dtype=int)
    return {(int(a), int(b)): int(times) for a, b, times in table}


@pytest.mark.slow
@pytest.mark.skipif(not ARCHIVE.is_file(), reason="COTERIE_DATA has no santander_siot.tar.gz")
def test_the_published_city_gives_the_known_relations() -> None:
    """OOR between private devices: 21,706 pairs; meetings as an independent derivation counts them."""
    population, stays = santander.read_city(ARCHIVE)
    assert (len(population), len(stays)) == (16_216, 411_731)
    assert len(next(iter(ownership(population)))) == 21_706
    private = stays.of(population.owners)
    public = stays.of(population.carriers[population.carriers < 0])
    rules = RelationRules()
    radius = rules.contact_radius_metres
    sor = spaced_encounters(meetings_within(private, radius, 1_800.0), 21_600.0)
    assert at_least(sor.a, sor.b, sor.times, 3) == derived("sor_user_pairs.csv.gz")
    sor2 = spaced_encounters(meetings_between(public, private, radius, 60.0), 3_600.0)
    assert at_least(-sor2.a, sor2.b, sor2.times, 3) == derived("sor2_device_user_pairs.csv.gz")
    lamps = np.flatnonzero(population.public & ~population.mobile)
    seen = visits(private, population.places[lamps], radius)
    assert at_least(population.devices[lamps[seen.a]], seen.b, seen.times, 14) == derived(
        "clor_publicstatic_user.csv.gz"
    )


def at_least(a: Integers, b: Integers, times: Integers, least: int) -> dict[tuple[int, int], int]:
    listed = zip(a.tolist(), b.tolist(), times.tolist(), strict=True)
    return {(x, y): n for x, y, n in listed if n >= least}
