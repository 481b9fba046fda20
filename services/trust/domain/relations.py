"""Derives social relations from profiles and movement, each relation with its reason.

The kinds are those of the social Internet of Things; the rules and their numbers follow the Santander data set (Marche
et al., "How to exploit the Social Internet of Things", Computer Networks 2020), every open choice a named parameter.
Relations come in blocks of columns, because same-make relations of a popular model are quadratic in its owners;
iterate a block to get single `Relation`s with a sentence each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import scipy  # loads its submodules on first use

from coterie.records.enums import RelationKind
from services.kit.errors import InvalidInput
from services.trust.domain.evidence import NO_PRIOR, Prior
from services.trust.domain.graph import Floats, Integers
from services.trust.domain.meetings import Encounters, meetings_between, meetings_within, spaced_encounters, visits
from services.trust.domain.population import UNKNOWN_MAKE, Population, Stays, matches, pairs_within, usual_places

WIFI_METRES = 400.0


class InvalidRelation(InvalidInput):
    """An invalid relation rule or declaration."""


_BECAUSE = {
    RelationKind.OWNERSHIP: "both belong to owner {owner:.0f}",
    RelationKind.PARENTAL: "both are type {type:.0f}, brand {brand:.0f}, model {model:.0f}",
    RelationKind.CO_LOCATION: "one was within reach of the other's place {times:.0f} times",
    RelationKind.CO_WORK: "they took part in {times:.0f} common tasks",
    RelationKind.SOCIAL: "their carriers met {times:.0f} times, long enough and far enough apart in time",
    RelationKind.SOCIAL_PUBLIC: "a public vehicle and a person met {times:.0f} times, long enough and far enough apart",
    RelationKind.FRIENDSHIP: "owners {owner_a:.0f} and {owner_b:.0f} are friends",
}


@dataclass(frozen=True, slots=True)
class Relation:
    """Two related devices (a < b), the strength in (0, 1], and the facts behind it."""

    kind: RelationKind
    a: int
    b: int
    strength: float
    facts: Mapping[str, float]

    @property
    def because(self) -> str:
        """The reason as a sentence for people."""
        reason = _BECAUSE[self.kind].format(**self.facts)
        return f"{reason}; {self.facts['metres']:.0f} m apart" if self.facts.get("metres", -1.0) >= 0 else reason


@dataclass(frozen=True, slots=True)
class Relations:
    """A block of relations of one kind, column by column; iterating yields `Relation`s."""

    kind: RelationKind
    a: Integers
    b: Integers
    strength: Floats
    facts: Mapping[str, npt.NDArray[np.generic]]

    def __len__(self) -> int:
        return len(self.a)

    def __iter__(self) -> Iterator[Relation]:
        columns = [column.tolist() for column in self.facts.values()]
        for k, (a, b, strength) in enumerate(
            zip(self.a.tolist(), self.b.tolist(), self.strength.tolist(), strict=True)
        ):
            facts = {name: float(column[k]) for name, column in zip(self.facts, columns, strict=True)}
            yield Relation(self.kind, a, b, strength, facts)


@dataclass(frozen=True, slots=True)
class RelationRules:
    """When devices count as related. Distances in metres, times in seconds.

    public_range_metres: two static public devices are co-owned only within this radio range (LoRa 1,500 m, Wi-Fi 400 m,
        Bluetooth 40 m); Wi-Fi by default. Mobile public devices are never co-owned.
    parental_distance_metres: devices of one make are related only farther apart than this (the authors use 2 or
        2.5 km); 0 relates all of them wherever they are. A carried device counts where its carrier stayed longest.
    contact_radius_metres: reach of a meeting; 0.015 of a unit of 4.44 km, the radius of the mobility model.
    co_location_meetings: a static and a private mobile device must meet *more* often than this.
    co_work_tasks: common tasks needed.
    social_*: meetings needed between private mobiles, how long each, and the least time from the end of one to the
        start of the next. social_public_*: the same between a public and a private mobile device.
    block_pairs: largest number of relations in one block, a bound on memory.
    """

    public_range_metres: float = WIFI_METRES
    parental_distance_metres: float = 2_000.0
    contact_radius_metres: float = 66.6
    co_location_meetings: int = 13
    co_work_tasks: int = 3
    social_meetings: int = 3
    social_meeting_seconds: float = 1_800.0
    social_interval_seconds: float = 6 * 3_600.0
    social_public_meetings: int = 3
    social_public_meeting_seconds: float = 60.0
    social_public_interval_seconds: float = 3_600.0
    block_pairs: int = 1_000_000

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            least = 1 if name in ("co_work_tasks", "social_meetings", "social_public_meetings", "block_pairs") else 0
            if not getattr(self, name) >= least:
                raise InvalidRelation(f"{name} must be at least {least}, not {getattr(self, name)}")


DEFAULT_RULES = RelationRules()


@dataclass(frozen=True, slots=True)
class Joiners:
    """Participation: device `devices[k]` in task `tasks[k]`; repetitions count once."""

    devices: Integers
    tasks: Integers


@dataclass(frozen=True, slots=True)
class RelationPriors:
    """Prior closeness by kind of relation. Off by default, as in the spec.

    `SUGGESTED` orders the kinds as the social-IoT literature does (co-owned closest, same make least); about five
    interactions outweigh a relation.
    """

    by_kind: Mapping[RelationKind, Prior] = field(default_factory=dict)

    def of(self, relations: Iterable[Relation]) -> Prior:
        """Return the strongest prior among a pair's relations, its closeness scaled by the relation's strength.

        The maximum and not the sum: relations overlap (co-owned devices also meet), and one fact counts once.
        """
        best = NO_PRIOR
        for relation in relations:
            prior = self.by_kind.get(relation.kind, NO_PRIOR)
            scaled = Prior(prior.closeness * relation.strength, prior.pseudo_count)
            best = max(best, scaled, key=lambda item: (item.closeness * (item.pseudo_count > 0), item.pseudo_count))
        return best


SUGGESTED = RelationPriors(
    {
        RelationKind.OWNERSHIP: Prior(0.9, 5.0),
        RelationKind.FRIENDSHIP: Prior(0.8, 5.0),
        RelationKind.CO_LOCATION: Prior(0.8, 5.0),
        RelationKind.CO_WORK: Prior(0.8, 5.0),
        RelationKind.SOCIAL: Prior(0.6, 5.0),
        RelationKind.SOCIAL_PUBLIC: Prior(0.5, 5.0),
        RelationKind.PARENTAL: Prior(0.5, 5.0),
    }
)


BEFRIENDED = RelationPriors({RelationKind.FRIENDSHIP: SUGGESTED.by_kind[RelationKind.FRIENDSHIP]})
"""The prior that always counts: friendship declared by both owners."""


def ownership(population: Population, rules: RelationRules = DEFAULT_RULES) -> Iterator[Relations]:
    """OOR: private devices of one owner; public static devices within radio range of each other."""
    private = np.flatnonzero(~population.public)
    for left, right in pairs_within(population.owners[private], rules.block_pairs):
        i, j = private[left], private[right]
        yield _block(RelationKind.OWNERSHIP, population, i, j, {"owner": population.owners[i]})
    places = population.places
    static = np.flatnonzero(population.public & ~np.isnan(places[:, 0]))
    if len(static):
        near = scipy.spatial.KDTree(places[static]).query_pairs(rules.public_range_metres, output_type="ndarray")
        i, j = static[near[:, 0]], static[near[:, 1]]
        metres = np.hypot(*(places[i] - places[j]).T)
        yield _block(RelationKind.OWNERSHIP, population, i, j, {"owner": population.owners[i], "metres": metres})


def parental(population: Population, stays: Stays, rules: RelationRules = DEFAULT_RULES) -> Iterator[Relations]:
    """POR: same type, brand and model, known, and farther apart than `parental_distance_metres`."""
    known, makes, places = _makes(population, stays, rules)
    for left, right in pairs_within(makes, rules.block_pairs):
        i, j = known[left], known[right]
        metres = np.hypot(*(places[i] - places[j]).T)
        far = np.flatnonzero(metres > rules.parental_distance_metres) if rules.parental_distance_metres else slice(None)
        i, j = i[far], j[far]
        facts = {"type": population.kinds[i], "brand": population.brands[i], "model": population.models[i]}
        if len(i):
            metres = np.nan_to_num(metres[far], nan=-1.0)
            yield _block(RelationKind.PARENTAL, population, i, j, {**facts, "metres": metres})


def co_location(population: Population, stays: Stays, rules: RelationRules = DEFAULT_RULES) -> Iterator[Relations]:
    """C-LOR: a static device and a private mobile one that met more than `co_location_meetings` times."""
    places = population.places
    static = np.flatnonzero(~np.isnan(places[:, 0]))
    spots, spot_of = np.unique(places[static], axis=0, return_inverse=True)
    walkers = np.flatnonzero(population.mobile & ~population.public)
    carriers, needed = population.carriers[walkers], rules.co_location_meetings + 1
    seen = _at_least(visits(stays.of(carriers), spots, rules.contact_radius_metres), needed)
    standing, walking = (static, spot_of.reshape(-1)), (walkers, carriers)
    yield from _expand(RelationKind.CO_LOCATION, population, pairs=seen, ones=standing, others=walking, needed=needed)


def co_work(population: Population, joiners: Joiners, rules: RelationRules = DEFAULT_RULES) -> Iterator[Relations]:
    """C-WOR: devices that took part in `co_work_tasks` or more common tasks."""
    rows = np.searchsorted(np.sort(population.devices), joiners.devices)
    known = np.isin(joiners.devices, population.devices)
    order = np.argsort(population.devices)
    tasks, columns = np.unique(joiners.tasks, return_inverse=True)
    pairs = np.unique(np.column_stack((order[rows[known]], columns.reshape(-1)[known])), axis=0)
    shape = (len(population), len(tasks))
    part = scipy.sparse.coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=shape).tocsr()
    common = scipy.sparse.triu(part @ part.T, k=1).tocoo()
    enough = common.data >= rules.co_work_tasks
    i, j = common.row[enough].astype(np.int64), common.col[enough].astype(np.int64)
    times = common.data[enough]
    if len(i):
        strength = times / (times + rules.co_work_tasks)
        yield _block(RelationKind.CO_WORK, population, i=i, j=j, facts={"times": times}, strength=strength)


def social(population: Population, stays: Stays, rules: RelationRules = DEFAULT_RULES) -> Iterator[Relations]:
    """SOR: private mobiles whose carriers met `social_meetings` times, long enough and far enough apart in time."""
    walkers = np.flatnonzero(population.mobile & ~population.public)
    carriers = population.carriers[walkers]
    met = meetings_within(stays.of(carriers), rules.contact_radius_metres, rules.social_meeting_seconds)
    pairs = _at_least(spaced_encounters(met, rules.social_interval_seconds), rules.social_meetings)
    ends = (walkers, carriers)
    yield from _expand(
        RelationKind.SOCIAL, population, pairs=pairs, ones=ends, others=ends, needed=rules.social_meetings
    )


def social_public(population: Population, stays: Stays, rules: RelationRules = DEFAULT_RULES) -> Iterator[Relations]:
    """SOR2: a public and a private mobile device that met `social_public_meetings` times, by separate thresholds."""
    walkers = np.flatnonzero(population.mobile & ~population.public)
    vehicles = np.flatnonzero(population.mobile & population.public)
    public, private = (vehicles, population.carriers[vehicles]), (walkers, population.carriers[walkers])
    met = meetings_between(
        stays.of(public[1]), stays.of(private[1]), rules.contact_radius_metres, rules.social_public_meeting_seconds
    )
    pairs = _at_least(spaced_encounters(met, rules.social_public_interval_seconds), rules.social_public_meetings)
    yield from _expand(
        RelationKind.SOCIAL_PUBLIC,
        population,
        pairs=pairs,
        ones=public,
        others=private,
        needed=rules.social_public_meetings,
    )


def friendship(population: Population, owner_a: int, owner_b: int, strength: float) -> Relations:
    """Every device of one owner with every device of the other, as declared by the owners; strength in (0, 1]."""
    if owner_a == owner_b or not 0 < strength <= 1:
        raise InvalidRelation(
            f"friendship needs two owners and a strength in (0, 1], got {owner_a}, {owner_b}, {strength}"
        )
    ones, others = (np.flatnonzero(population.owners == owner) for owner in (owner_a, owner_b))
    i, j = np.repeat(ones, len(others)), np.tile(others, len(ones))
    facts = {"owner_a": np.full(len(i), owner_a), "owner_b": np.full(len(i), owner_b)}
    return _block(RelationKind.FRIENDSHIP, population, i=i, j=j, facts=facts, strength=np.full(len(i), strength))


def derive(
    population: Population, stays: Stays, joiners: Joiners | None = None, rules: RelationRules = DEFAULT_RULES
) -> Iterator[Relations]:
    """Yield every derived relation, kind after kind, in blocks."""
    yield from ownership(population, rules)
    yield from parental(population, stays, rules)
    yield from co_location(population, stays, rules)
    if joiners is not None:
        yield from co_work(population, joiners, rules)
    yield from social(population, stays, rules)
    yield from social_public(population, stays, rules)


def _block(
    kind: RelationKind,
    population: Population,
    i: Integers,
    j: Integers,
    facts: Mapping[str, npt.NDArray[np.generic]],
    strength: Floats | None = None,
) -> Relations:
    one, other = population.devices[i], population.devices[j]
    full = np.ones(len(i)) if strength is None else strength
    return Relations(kind, np.minimum(one, other), np.maximum(one, other), full, facts)


def _makes(population: Population, stays: Stays, rules: RelationRules) -> tuple[Integers, Integers, Floats]:
    """Return devices of known make (and known place, if distance matters) by make; the make's number; all places."""
    places = usual_places(population, stays)
    known = (population.brands != UNKNOWN_MAKE) & (population.models != UNKNOWN_MAKE)
    if rules.parental_distance_metres:
        known &= ~np.isnan(places[:, 0])
    rows = np.flatnonzero(known)
    columns = np.column_stack((population.kinds, population.brands, population.models))[rows]
    makes = np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.argsort(makes, kind="stable")
    return rows[order], makes[order], places


def _at_least(encounters: Encounters, times: int) -> Encounters:
    enough = encounters.times >= times
    return Encounters(encounters.a[enough], encounters.b[enough], encounters.times[enough])


def _expand(
    kind: RelationKind,
    population: Population,
    pairs: Encounters,
    ones: tuple[Integers, Integers],
    others: tuple[Integers, Integers],
    needed: int,
) -> Iterator[Relations]:
    """Return relations of all devices at end a with all at end b; an end is (positions of devices, their labels).

    Strength n/(n + needed): one half at the threshold, approaching 1 with more meetings.
    """
    rows, left = matches(ones[1], pairs.a)
    again, right = matches(others[1], pairs.b[rows])
    i, j = ones[0][left[again]], others[0][right]
    times = pairs.times[rows[again]]
    if len(i):
        yield _block(kind, population, i=i, j=j, facts={"times": times}, strength=times / (times + needed))
