"""The current partition: clusters, payoffs, and the moves open to a device. [SCFL] §V-A.

A board is the mutable state of one formation. It answers which clusters a device would rather be in (eq (20) without
histories) and carries out transfers; the order of play and the histories belong to `formation.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from services.topology.domain import formation_kernel as kernel
from services.topology.domain.coalition import Game, Partition, partition_of
from services.topology.domain.coalition_value import TOLERANCE
from services.topology.domain.quality import Floats, Integers

SOLO = -1
"""Target of a device that would rather be alone."""

Option = tuple[float, int]
"""Preference ρ and the number of the cluster it is for (`SOLO`: alone)."""


class Board:
    """A partition of the game's devices under change.

    members: the devices of every cluster number; empty sets are free numbers.
    """

    def __init__(self, game: Game, partition: Partition, *, pruned: bool = True) -> None:
        size = game.size
        self._game, self._pruned = game, pruned
        self.members: list[set[int]] = [set() for _ in range(size + 1)]
        self._state = _blank(size)
        self._moves = 0
        self._content = np.full(size, -1, dtype=np.int64)  # move after which the device was last seen to want nothing
        self._refused: set[int] = set()  # devices that `allowed` has refused something they wanted
        self._scratch = (np.empty(size + 1, np.int64), np.empty(size + 1, np.int64), np.empty(size + 1))
        self.reset(partition)

    def reset(self, partition: Partition) -> None:
        """Puts every device where `partition` says."""
        self._content[:] = -1
        state = self._state
        state.first[:], state.after[:], state.size[:] = -1, -1, 0
        self.members = [set(group) for group in partition_of(partition, self._game.size)]
        self.members += [set() for _ in range(self._game.size + 1 - len(self.members))]
        for number, group in enumerate(self.members):
            for device in group:
                state.after[device], state.first[number] = state.first[number], device
                state.cluster[device] = number
        self._free = [number for number, group in enumerate(self.members) if not group]
        for number, group in enumerate(self.members):
            if group:
                self._settle(number)

    @property
    def partition(self) -> Partition:
        """The present clusters in canonical order."""
        return tuple(sorted(tuple(sorted(group)) for group in self.members if group))

    @property
    def noise(self) -> Floats:
        """σ of every device."""
        return self._state.noise.copy()

    @property
    def quality(self) -> Floats:
        """q of every device."""
        return self._state.quality.copy()

    @property
    def payoff(self) -> Floats:
        """ψ of every device."""
        return self._state.payoff.copy()

    @property
    def welfare(self) -> float:
        """Σψ over all devices."""
        return float(self._state.payoff.sum())

    def cluster_of(self, device: int) -> int:
        """Number of the device's cluster."""
        return int(self._state.cluster[device])

    def head_of(self, cluster: int) -> int:
        """Head of a cluster that is not empty."""
        return int(self._state.head[cluster])

    def standing(self, device: int) -> float:
        """ρ of the device's present cluster: its payoff, −∞ where it is a stranger to the head (spec A11)."""
        state = self._state
        return float("-inf") if self._game.tables.forbid and state.stranger[device] else float(state.payoff[device])

    def options(self, device: int, allowed: Callable[[int], bool]) -> list[Option]:
        """Everything `device` would rather do, without what `allowed(cluster)` refuses.

        Complete where it matters: an option may be left out only if it is worse than the best one returned by more
        than the tolerance. Clusters of neighbours are always looked at; the others only where they could admit the
        device and offer as much as the best option so far (`formation_kernel.far`). A device that wanted nothing looks
        again only at clusters that changed since, as long as its own did not: what `allowed` refuses it must go on
        refusing, or `forget` be called.
        """
        state, present = self._state, self.standing(device)
        alone = float(self._game.tables.solo_value[device])
        worth: list[Option] = []
        floor = present + TOLERANCE
        if len(self.members[state.cluster[device]]) > 1:
            if alone > floor:
                worth.append((alone, SOLO))
            floor = max(floor, alone - 2.0 * TOLERANCE)
        own = state.changed[state.cluster[device]]
        since = int(self._content[device]) if own <= self._content[device] else -1
        count = self._near(device, since, floor)
        worth += self._found(0, count, allowed)
        ceiling = max([floor, *(rho - TOLERANCE for rho, _ in worth)]) - TOLERANCE
        total = self._far(device, since, count, floor, ceiling)
        kernel.clear(self._game.tables, state, device)
        worth += self._found(count, total, allowed)
        self._content[device] = -1 if worth else self._moves
        if total and not worth:
            self._refused.add(device)
        return worth

    def next_restless(self, start: int) -> int:
        """The first device from `start` on that may have an option (`options` decides), or the number of devices."""
        tables = self._game.tables
        return int(kernel.restless(tables, self._state, start, self._content, self._moves, self._pruned))

    def move(self, device: int, target: int) -> int:
        """Moves `device` to cluster `target` (or `SOLO`); returns the number of its new cluster."""
        self._moves += 1
        source = self.cluster_of(device)
        number = self._free.pop() if target == SOLO else target
        self.members[source].remove(device)
        self.members[number].add(device)
        kernel.move(self._state, device, number)
        if not self.members[source]:
            self._free.append(source)
        self._settle(source)
        self._settle(number)
        return number

    def forget(self) -> None:
        """Makes every device that was refused something look at every cluster again; the others had no wishes."""
        self._content[list(self._refused)] = -1
        self._refused.clear()

    def _found(self, start: int, end: int, allowed: Callable[[int], bool]) -> list[Option]:
        numbers, values = self._state.targets[start:end].tolist(), self._state.gains[start:end].tolist()
        return [(rho, number) for rho, number in zip(values, numbers, strict=True) if allowed(number)]

    def _settle(self, cluster: int) -> None:
        while not kernel.settle(self._game.tables, self._state, cluster, *self._scratch[:2]):
            self._game.supply_row()
        self._state.changed[cluster] = self._moves

    def _near(self, device: int, since: int, floor: float) -> int:
        state = self._state
        while (count := int(kernel.near(self._game.tables, state, device, since, floor, *self._scratch))) < 0:
            kernel.clear(self._game.tables, state, device)
            self._game.supply_row()
        return count

    def _far(self, device: int, since: int, count: int, floor: float, ceiling: float) -> int:
        limits = (since, count, floor, ceiling, self._pruned)
        while (total := int(kernel.far(self._game.tables, self._state, device, *limits, *self._scratch))) < 0:
            self._game.supply_row()
        return total


def _blank(size: int) -> kernel.State:
    def integers(value: int, length: int = size) -> Integers:
        return np.full(length, value, dtype=np.int64)

    slots = size + 1  # one more than devices, so that a device can leave a full table of singletons' numbers
    return kernel.State(
        cluster=integers(-1),
        first=integers(-1, slots),
        after=integers(-1),
        size=integers(0, slots),
        head=integers(-1, slots),
        links=integers(0),
        noise=np.zeros(size),
        quality=np.zeros(size),
        payoff=np.zeros(size),
        stranger=np.zeros(size, dtype=np.bool_),
        value=np.zeros(slots),
        swing=np.zeros(slots),
        bar=np.zeros(slots),
        changed=integers(0, slots),
        mark=np.zeros(size),
        seen=integers(-1, slots),
        targets=integers(-1, slots),
        gains=np.zeros(slots),
    )
