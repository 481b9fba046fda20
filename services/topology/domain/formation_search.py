"""Looks for a stable partition where play ended without one: exactly in small components, by seeded detours in large
ones. Beyond [SCFL]: with histories and restarts, play alone misses stable partitions that exist (spec A16).

Trust is 0 between components of the social graph, so where strangers are forbidden the game falls apart into one game
per component and a partition is stable iff it is stable in each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from services.topology.domain.coalition import Game, Partition, partition_of
from services.topology.domain.formation_board import Board
from services.topology.domain.stability import blocking_move

Found = Literal["", "exact", "perturbed"]
EXACT_UP_TO = 9
"""Components of up to this many devices are searched completely (Notifier(9) = 21,147 partitions)."""
DETOURS = 40
_STEPS_PER_DEVICE = 30


def stable_partition(game: Game, end: Partition, board: Board) -> tuple[Partition, Found]:
    """A stable partition near `end` and how it was found, or the most that could be repaired of `end`.

    Small components get, of all their stable partitions, the one with the largest total payoff (first in enumeration
    order among equals); a small component without any keeps its part of `end`. Large components play on from `end`
    without histories, in a seeded random order with random profitable moves, up to `DETOURS` times; the component
    keeps its part of `end` if none of them ends. `board` is used as scratch.
    """
    parts = _components(game)
    result = end
    how: Found = ""
    for devices in parts:
        own = tuple(group for group in result if group[0] in devices)
        if len(devices) == 1:
            continue
        part = _Part(game, sorted(devices))
        if blocking_move(part.game, part.inside(own)) is None:
            continue
        match = _exact(part) if len(devices) <= EXACT_UP_TO else None
        label: Found = "exact"
        if match is None and len(devices) > EXACT_UP_TO:
            match, label = _detours(part, own), "perturbed"
        if match is not None:
            others = tuple(group for group in result if group[0] not in devices)
            result, how = partition_of((*others, *match), game.size), label
    return result, how


class _Part:
    """One component as a separate game, with the map back to the whole game's device numbers."""

    def __init__(self, game: Game, devices: list[int]) -> None:
        self.devices = devices
        self._place = {device: k for k, device in enumerate(devices)}
        self.game = game.part(devices)

    def inside(self, partition: Partition) -> Partition:
        return partition_of(([self._place[n] for n in group] for group in partition), len(self.devices))

    def outside(self, partition: Partition) -> Partition:
        return tuple(tuple(self.devices[k] for k in group) for group in partition)


def partitions(size: int) -> Iterator[Partition]:
    """Every partition of 0..size−1, in lexicographic order of restricted growth strings: all together first."""
    groups: list[list[int]] = []

    def place(device: int) -> Iterator[Partition]:
        if device == size:
            yield tuple(tuple(group) for group in groups)
            return
        for group in groups:
            group.append(device)
            yield from place(device + 1)
            group.pop()
        groups.append([device])
        yield from place(device + 1)
        groups.pop()

    return place(0)


def _exact(part: _Part) -> Partition | None:
    best, welfare = None, -np.inf
    board = Board(part.game, tuple((k,) for k in range(len(part.devices))))
    for candidate in partitions(len(part.devices)):
        if blocking_move(part.game, candidate) is None:
            board.reset(candidate)
            if board.welfare > welfare + 1e-9:
                best, welfare = candidate, board.welfare
    return None if best is None else part.outside(best)


def _detours(part: _Part, own: Partition) -> Partition | None:
    size = len(part.devices)
    start = part.inside(own)
    board = Board(part.game, start)
    for seed in range(DETOURS):
        random = np.random.default_rng(seed)
        board.reset(start if seed % 4 else tuple((k,) for k in range(size)))
        if _wander(board, random, size) and blocking_move(part.game, board.partition) is None:
            return part.outside(board.partition)
    return None


def _wander(board: Board, random: np.random.Generator, size: int) -> bool:
    """Random profitable moves in random order until no device wants to move; False when steps run out."""
    quiet = 0
    for _ in range(_STEPS_PER_DEVICE):
        for device in random.permutation(size).tolist():
            options = board.options(device, lambda _: True)
            quiet = 0 if options else quiet + 1
            if quiet >= size:
                return True
            if options:
                board.move(device, options[int(random.integers(len(options)))][1])
    return False


def _components(game: Game) -> list[set[int]]:
    if game.game_parameters.strangers != "forbid":
        return [set(range(game.size))]
    groups: dict[int, set[int]] = {}
    for device, label in enumerate(game.tables.component.tolist()):
        groups.setdefault(label, set()).add(device)
    return list(groups.values())
