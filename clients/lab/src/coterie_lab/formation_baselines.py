"""What cluster formation is measured against: no cooperation, clusters around the best connected, the best partition
anyone could order, and a bound on that. [SCFL] §VI, "Non-cooperative", "Social influence based", "Centralized"; spec
§3.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from services.kit.errors import TooLarge
from services.topology.domain.coalition import Game, InvalidGame, Partition, evaluate, partition_of, singletons
from services.topology.domain.coalition_value import TOLERANCE
from services.topology.domain.quality import Floats, Integers

EXACT_UP_TO = 9
INFLUENCERS = 10
_SWEEPS = 1_000


class TooManyDevices(TooLarge):
    """More devices than an exact optimum can be found for."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A partition of another rule, every device's payoff in it, and who is head of each cluster.

    heads: of the clusters, in their order; empty where the game elects them.
    """

    partition: Partition
    payoff: Floats
    heads: tuple[int, ...] = ()

    @property
    def welfare(self) -> float:
        """Σψ over all devices."""
        return math.fsum(self.payoff)


def non_cooperative(game: Game) -> Baseline:
    """Every device alone with σ_max."""
    return Baseline(singletons(game.size), game.tables.solo_value.copy())


def upper_bound(game: Game) -> float:
    """No partition pays more in total: every device at σ = 0 in a cluster, or alone where that is worth more."""
    game_parameters = game.game_parameters
    noiseless = game_parameters.price * game.quality.quality(0.0, game.non_iid) - game_parameters.member_cost
    return math.fsum(np.maximum(noiseless, game.tables.solo_value))


def social_influence(game: Game, heads: int = INFLUENCERS) -> Baseline:
    """The `heads` devices of highest degree (ties: smallest id) are permanent heads; the others best-respond in turn.

    A device chooses among those clusters and being alone, under consent (20c), until a sweep without moves. With the
    head fixed a member's quality is fixed too, so all members consent iff surplus per quality X/Q does not fall.
    """
    if heads < 1:
        raise InvalidGame(f"social influence needs at least one head, not {heads}")
    chosen = np.argsort(-game.graph.degrees, kind="stable")[:heads]
    trust = np.array([game.trust_row(int(head)) for head in chosen])
    quality = np.array([game.quality.quality(game.quality.noise(row), game.non_iid) for row in trust])
    forbidden = (trust <= 0) & (game.game_parameters.strangers == "forbid")
    place = np.full(game.size, -1, dtype=np.int64)
    place[chosen] = np.arange(len(chosen))
    followers = np.setdiff1d(np.arange(game.size), chosen)
    for _ in range(_SWEEPS):
        moved = [n for n in followers.tolist() if _respond(game, n, place, quality, forbidden)]
        if not moved:
            break
    payoff = game.tables.solo_value.copy()
    for cluster, head in enumerate(chosen):
        members = np.flatnonzero(place == cluster)
        if len(members) > 1:
            payoff[members] += quality[cluster, members] * _ratio(game, members, quality[cluster])
            payoff[head] += game.game_parameters.head_reward
    groups = [np.flatnonzero(place == cluster).tolist() for cluster in range(len(chosen))]
    loners = [[device] for device in np.flatnonzero(place < 0).tolist()]
    partition = partition_of([*groups, *loners], game.size)
    permanent = set(chosen.tolist())
    seated = tuple(next((device for device in group if device in permanent), group[0]) for group in partition)
    return Baseline(partition, payoff, seated)


def optimum(game: Game) -> Baseline:
    """The feasible partition with the largest Σψ, over all partitions; at most nine devices.

    Best value of a set of devices = max over the cluster of its smallest device, so that each of the Bell(n) partitions
    is covered by O(3^n) steps. Equal values: the first found, clusters enumerated from the largest.
    """
    if game.size > EXACT_UP_TO:
        raise TooManyDevices(
            f"the exact optimum is for at most {EXACT_UP_TO} devices, not {game.size}; use local_search"
        )
    values = [-math.inf] * (1 << game.size)
    for mask in range(1, 1 << game.size):
        coalition = evaluate(game, _members(mask))
        values[mask] = coalition.value if coalition.feasible else -math.inf
    best: list[tuple[float, int]] = [(0.0, 0)] + [(-math.inf, 0)] * ((1 << game.size) - 1)
    for mask in range(1, 1 << game.size):
        lowest, rest = mask & -mask, mask & (mask - 1)
        others = rest
        while True:
            total = values[lowest | others] + best[rest ^ others][0]
            if total > best[mask][0] + TOLERANCE:
                best[mask] = (total, lowest | others)
            if others == 0:
                break
            others = (others - 1) & rest
    groups, mask = [], (1 << game.size) - 1
    while mask:
        groups.append(_members(best[mask][1]))
        mask ^= best[mask][1]
    return _baseline(game, partition_of(groups, game.size))


def local_search(game: Game, start: Partition) -> Baseline:
    """From `start`, the single relocation or merger of two clusters that adds to Σψ, device by device, until none does.

    A stand-in for the central optimum where that is out of reach: a lower bound on it. `start` must be feasible.
    """
    worth: dict[frozenset[int], float] = {}

    def value(group: frozenset[int]) -> float:
        if group and group not in worth:
            coalition = evaluate(game, sorted(group))
            worth[group] = coalition.value if coalition.feasible else -math.inf
        return worth[group] if group else 0.0

    groups = {frozenset(group) for group in partition_of(start, game.size)}
    improved = True
    while improved:
        improved = False
        for device in range(game.size):
            own = next(group for group in groups if device in group)
            left, base = own - {device}, value(own)
            targets = sorted(groups - {own}, key=min)
            gains = [value(to | {device}) + value(left) - value(to) - base for to in targets]
            mergers = [value(to | own) - value(to) - base for to in targets]
            alone = value(frozenset({device})) + value(left) - base if left else 0.0
            step = max([alone, *gains, *mergers])
            if step <= TOLERANCE:
                continue
            improved = True
            if step == alone:
                groups = (groups - {own}) | {left, frozenset({device})}
            elif step in gains:
                to = targets[gains.index(step)]
                groups = ((groups - {own, to}) | {left, to | {device}}) - {frozenset()}
            else:
                to = targets[mergers.index(step)]
                groups = (groups - {own, to}) | {to | own}
    return _baseline(game, partition_of(groups, game.size))


def _respond(
    game: Game,
    device: int,
    place: Integers,
    quality: Floats,
    forbidden: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
) -> bool:
    """Moves `device` to its best admitting cluster or alone if that pays; True if it moved."""
    solo = float(game.tables.solo_value[device])
    present, best, target = solo, -math.inf, -1
    for cluster in range(len(quality)):
        members = np.flatnonzero(place == cluster)
        if place[device] == cluster:
            present = solo + quality[cluster, device] * _ratio(game, members, quality[cluster])
            continue
        if forbidden[cluster, device]:
            continue
        joined = np.append(members, device)
        ratio = _ratio(game, joined, quality[cluster])
        if len(members) == 1:  # the head alone: it had its solo value, and now its share and its reward
            consents = quality[cluster, members[0]] * ratio + game.game_parameters.head_reward >= -TOLERANCE
        else:
            consents = bool(
                (quality[cluster, members] * (ratio - _ratio(game, members, quality[cluster])) >= -TOLERANCE).all()
            )
        offer = solo + quality[cluster, device] * ratio
        if consents and offer > best + TOLERANCE:
            best, target = offer, cluster
    if solo >= best - TOLERANCE and solo > present + TOLERANCE:
        place[device] = -1
        return True
    if best > present + TOLERANCE:
        place[device] = target
        return True
    return False


def _ratio(game: Game, members: Integers, quality: Floats) -> float:
    """Surplus per quality of a cluster of two or more: (V(C) − Σ V({l}) − ζ)/Σq."""
    total = float(quality[members].sum())
    value = game.game_parameters.price * total - game.game_parameters.member_cost * len(members)
    return (value - float(game.tables.solo_value[members].sum()) - game.game_parameters.head_reward) / total


def _baseline(game: Game, partition: Partition) -> Baseline:
    payoff = np.empty(game.size)
    for group in partition:
        payoff[list(group)] = evaluate(game, group).payoff
    return Baseline(partition, payoff)


def _members(mask: int) -> list[int]:
    return [device for device in range(mask.bit_length()) if mask >> device & 1]
