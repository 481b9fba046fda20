"""Value, head, payoffs and preference of a cluster. [SCFL] "Social-Aware
Clustered Federated Learning", §IV-D and §V-A, eqs (15)-(20); exact rules in spec §2 and §3.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.interpolate import CubicSpline
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from coterie.privacy import gaussian
from services.kit.errors import InvalidInput
from services.topology.domain import coalition_value
from services.topology.domain.quality import Floats, Integers, QualityModel
from services.trust.domain import scores
from services.trust.domain.graph import TrustGraph

_KNOTS = 4097
_ALL_ROWS_UP_TO = 1024
"""Graphs of up to this many devices keep the whole trust matrix (8 MB); larger ones compute far rows on demand."""

Strangers = Literal["forbid", "noise_max"]
Partition = tuple[tuple[int, ...], ...]
"""Clusters with ascending members, ordered by their smallest member."""


class InvalidGame(InvalidInput):
    """Constants or data that do not describe a cluster formation game."""


class InvalidPartition(InvalidInput):
    """Clusters that do not hold every device exactly once."""


@dataclass(frozen=True, slots=True)
class GameParameters:
    """Price of quality and costs of clusters; the defaults are [SCFL] §VI.

    price: λ_p, paid per point of quality. member_cost: λ_c, paid by every member of a cluster of two or more.
    head_reward: ζ, moved from the cluster's surplus to its head; [SCFL] names no value (spec A9).
    strangers: a cluster in which a member has no trust at all in the head is infeasible ("forbid"), or kept with that
        member at σ_max ("noise_max"; then two strangers profit from pairing, spec A8).
    """

    price: float = 0.52
    member_cost: float = 1.2
    head_reward: float = 0.0
    strangers: Strangers = "forbid"

    def __post_init__(self) -> None:
        for name in ("price", "member_cost", "head_reward"):
            number = getattr(self, name)
            if not 0 <= number < math.inf:
                raise InvalidGame(f"{name} must be finite and ≥ 0, not {number}")
        if self.price == 0:
            raise InvalidGame("price must be above 0: quality that earns nothing leaves nothing to divide")


@dataclass(frozen=True, slots=True)
class Coalition:
    """One cluster evaluated: arrays are in the order of `members` (ascending)."""

    members: tuple[int, ...]
    head: int
    noise: Floats
    quality: Floats
    payoff: Floats
    value: float
    feasible: bool


@dataclass(slots=True, eq=False)
class Game:
    """Devices, their trust and data, and the constants of the game.

    graph: direct trust e among the devices. non_iid: γ ≥ 0 of every device (one number: the same for all).
    direct_weight: ω. trust: combined trust α of every pair from the registry, whose paths may lead through
        devices that take no part; without it the graph is the whole world and α follows from it.

    The game never changes. Without `trust`, `tables` caches rows of α between devices three or more hops apart, which
    are computed when the game first considers a cluster that needs one.
    """

    graph: TrustGraph
    non_iid: Floats
    quality: QualityModel
    game_parameters: GameParameters
    direct_weight: float
    tables: coalition_value.Tables = field(repr=False)
    _used: int = field(repr=False)
    _has_trust: bool = field(repr=False)

    def __init__(
        self,
        graph: TrustGraph,
        non_iid: npt.ArrayLike,
        *,
        quality: QualityModel | None = None,
        game_parameters: GameParameters | None = None,
        direct_weight: float = 0.8,
        trust: Floats | None = None,
    ) -> None:
        if not 0 <= direct_weight <= 1:
            raise InvalidGame(f"direct_weight must lie in [0, 1], not {direct_weight}")
        self.graph, self.non_iid = graph, _degrees_of(non_iid, graph.size)
        self.quality, self.game_parameters = quality or QualityModel(), game_parameters or GameParameters()
        self.direct_weight = direct_weight
        self.tables, self._used, self._has_trust = _tables(self), 0, trust is not None
        if trust is not None:
            _check_trust(trust, graph, direct_weight)
            self.tables = self.tables._replace(component=_connected(trust, self.tables.component))
        elif graph.size <= _ALL_ROWS_UP_TO:
            trust = scores.trust_rows(graph, np.arange(graph.size), direct_weight).trust
        if trust is not None:
            self.tables = self.tables._replace(rows=trust, slot=np.arange(graph.size))

    @property
    def size(self) -> int:
        """Number of devices."""
        return self.graph.size

    def trust_row(self, device: int) -> Floats:
        """α from one device to all, itself included (1)."""
        slot = int(self.tables.slot[device])
        if slot >= 0:
            row: Floats = self.tables.rows[slot]
            return row
        return scores.trust_from(self.graph, device, self.direct_weight)

    def part(self, devices: Sequence[int]) -> Game:
        """The game among some of the devices, renumbered in the order given, with the trust they have here."""
        chosen = np.array(devices, dtype=np.int64)
        place = np.full(self.size, -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        ties = [(place[a], place[b], e) for a, b, e in self.graph.edges() if place[a] >= 0 and place[b] >= 0]
        a, b, values = zip(*ties, strict=True) if ties else ((), (), ())
        return Game(
            TrustGraph.from_ties(len(chosen), a, b, values),
            self.non_iid[chosen],
            quality=self.quality,
            game_parameters=self.game_parameters,
            direct_weight=self.direct_weight,
            trust=self.tables.rows[np.ix_(chosen, chosen)] if self._has_trust else None,
        )

    def supply_row(self) -> None:
        """Compute the far trust row that a kernel call lacked."""
        device = int(self.tables.missing[0])
        rows = self.tables.rows
        if self._used == len(rows):
            grown = np.empty((max(16, 2 * len(rows)), self.size))
            grown[: len(rows)] = rows
            self.tables = self.tables._replace(rows=grown)
        self.tables.rows[self._used] = scores.trust_from(self.graph, device, self.direct_weight)
        self.tables.slot[device] = self._used
        self._used += 1


def singletons(size: int) -> Partition:
    """Every device alone."""
    return tuple((device,) for device in range(size))


def partition_of(clusters: Iterable[Iterable[int]], size: int) -> Partition:
    """`clusters` in canonical order, or `InvalidPartition` unless they hold each of 0..size−1 exactly once."""
    groups = sorted(tuple(sorted(members)) for members in clusters)
    flat = sorted(device for members in groups for device in members)
    if () in groups:
        raise InvalidPartition("a cluster without members is not allowed; leave it out")
    if flat != list(range(size)):
        wrong = sorted(set(flat).symmetric_difference(range(size)) | {a for a, b in pairwise(flat) if a == b})
        raise InvalidPartition(
            f"clusters must hold each of the {size} devices 0..{size - 1} exactly once; look at device {wrong[0]}"
        )
    return tuple(groups)


def evaluate(game: Game, members: Sequence[int]) -> Coalition:
    """Head, noise, quality and payoff of all members if exactly `members` formed a cluster. [SCFL] eqs (15)-(18).

    V(C) = λ_p Σq − λ_c|C|, V({n}) = λ_p q(σ_max, γ_n), and

        ψ_n = q_n/Σq · (V(C) − Σ_l V({l}) − ζ) + V({n}) + (ζ if n is head),

    so that Σψ = V(C). Unlike [SCFL], which takes ζ from all members and pays no one, the head receives it (spec A9).
    """
    chosen = tuple(sorted(members))
    if not chosen or len(set(chosen)) < len(chosen):
        raise InvalidPartition(f"a cluster needs distinct members, at least one, not {list(members)}")
    game.graph.check(*chosen)
    noise, quality, payoff = (np.empty(len(chosen)) for _ in range(3))
    stranger = np.zeros(len(chosen), dtype=np.bool_)
    ids = np.array(chosen, dtype=np.int64)
    while (head := int(coalition_value.appraise(game.tables, ids, noise, quality, payoff, stranger))) < 0:
        game.supply_row()
    feasible = game.game_parameters.strangers != "forbid" or not stranger.any()
    return Coalition(
        members=chosen,
        head=head,
        noise=noise,
        quality=quality,
        payoff=payoff,
        value=float(math.fsum(payoff)),
        feasible=feasible,
    )


def preference(game: Game, device: int, others: Sequence[int], history: Iterable[frozenset[int]] = ()) -> float:
    """ρ_n(S): payoff of `device` outside S after joining S, −∞ if it may not. [SCFL] eq (20), spec A10.

    It may not if (a) S ∪ {n} is infeasible, (b) n has been in S ∪ {n} before (`history`), or (c) a member of S would
    lose. Being alone (S empty) is always allowed.
    """
    if not others:
        return float(evaluate(game, [device]).payoff[0])
    joined = evaluate(game, [*others, device])
    if not joined.feasible or frozenset(joined.members) in set(history):
        return -math.inf
    before = evaluate(game, others)
    after = dict(zip(joined.members, joined.payoff, strict=True))
    for member, payoff in zip(before.members, before.payoff, strict=True):
        if after[member] < payoff - coalition_value.TOLERANCE:
            return -math.inf
    return float(after[device])


def _degrees_of(non_iid: npt.ArrayLike, size: int) -> Floats:
    given = np.asarray(non_iid, dtype=np.float64)
    if given.ndim > 1 or (given.ndim == 1 and len(given) != size):
        raise InvalidGame(f"non_iid must be one number or one per device ({size}), not of shape {given.shape}")
    if not bool(((given >= 0) & np.isfinite(given)).all()):
        raise InvalidGame(f"non_iid must be finite and ≥ 0, not {given.tolist()}")
    return np.array(np.broadcast_to(given, (size,)))


def _check_trust(trust: Floats, graph: TrustGraph, direct_weight: float) -> None:
    """Require the α that pruning relies on: e between neighbours, at most 1 − ω elsewhere."""
    if trust.shape != (graph.size, graph.size):
        raise InvalidGame(f"trust must have {graph.size} rows and columns, not shape {trust.shape}")
    rows = np.repeat(np.arange(graph.size), graph.degrees)
    if not np.allclose(trust[rows, graph.indices], graph.values, rtol=0.0, atol=coalition_value.TRUST_TOLERANCE):
        raise InvalidGame("trust between neighbours must be their direct trust")
    too_much = trust > 1.0 - direct_weight + coalition_value.TRUST_TOLERANCE
    np.fill_diagonal(too_much, False)
    too_much[rows, graph.indices] = False
    if too_much.any():
        raise InvalidGame(f"trust between devices that never met must not exceed 1 - ω = {1.0 - direct_weight:g}")


def _connected(trust: Floats, component: Integers) -> Integers:
    """Labels of devices that trust may join: components of the ties, merged where α leads from one to another.

    For ω < 1 α is positive exactly between devices that some path connects, so one row tells all a component is
    connected with; for ω = 1 devices trust only along ties and nothing merges.
    """
    merged = component.copy()
    for device in np.unique(component, return_index=True)[1].tolist():
        joined = np.unique(merged[trust[device] > 0.0])
        merged[np.isin(merged, joined)] = joined[0]
    return merged


def _tables(game: Game) -> coalition_value.Tables:
    graph, model, game_parameters, size = game.graph, game.quality, game.game_parameters, game.graph.size
    mu1, mu2, mu3, mu4, mu5 = model.loss_fit
    curve_low, curve_step, curve = _curve(model)
    solo = model.quality(model.noise_max, game.non_iid)
    far_noise = model.noise(np.array([1.0 - game.direct_weight]))
    links: csr_array[np.float64] = csr_array((graph.values, graph.indices, graph.indptr), shape=(size, size))
    return coalition_value.Tables(
        indptr=graph.indptr,
        indices=graph.indices,
        closeness=graph.values,
        component=connected_components(links, directed=False)[1].astype(np.int64),
        far_weight=1.0 - game.direct_weight,
        rows=np.empty((0, size)),
        slot=np.full(size, -1, dtype=np.int64),
        missing=np.full(1, -1, dtype=np.int64),
        threshold=float(model.trust_threshold),
        noise_max=float(model.noise_max),
        budget_scale=float(model.budget_scale),
        budget_shift=float(model.budget_shift),
        paper_multiplier=gaussian.paper_multiplier(1.0, model.failure_probability),
        curve_low=curve_low,
        curve_step=curve_step,
        curve=curve,
        loss_top=mu1 * np.exp(-mu2 * game.non_iid),
        loss_shift=float(mu3),
        loss_rate=float(mu4),
        loss_floor=float(mu5),
        quality_offset=float(model.quality_offset),
        quality_slope=float(model.quality_slope),
        price=float(game_parameters.price),
        cost=float(game_parameters.member_cost),
        reward=float(game_parameters.head_reward),
        forbid=game_parameters.strangers == "forbid",
        solo_quality=solo,
        solo_value=game_parameters.price * solo,
        full_quality=model.quality(0.0, game.non_iid),
        far_quality=model.quality(far_noise, game.non_iid),
    )


def _curve(model: QualityModel) -> tuple[float, float, Floats]:
    """The exact calibration as cubic pieces in ln ε over the budgets where it stays below σ_max.

    σ(ln ε) is smooth and the knots lie under 2e-3 apart, so the pieces are within 1e-11 of `model.multiplier`, two
    digits inside the payoff tolerance; solving for every considered pair instead would dominate the formation.
    """
    nothing = 0.0, 1.0, np.empty((4, 0))
    if model.calibration == "paper" or model.noise_max == 0:
        return nothing
    high = low = float(model.budget(1.0))
    while model.multiplier(np.array([low]))[0] < model.noise_max and low > 1e-6:
        low *= 0.5
    knots = np.linspace(math.log(low), math.log(high), _KNOTS) if low < high else np.empty(0)
    if not len(knots):
        return nothing[0], nothing[1], np.array([[0.0], [0.0], [0.0], [model.noise_max]])
    pieces = CubicSpline(knots, model.multiplier(np.exp(knots))).c
    return float(knots[0]), float(knots[1] - knots[0]), np.ascontiguousarray(pieces, dtype=np.float64)
