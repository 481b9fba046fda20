"""The committee of a secure sum: clerks of different owners with the largest least trust of all participants.

A sum is safe for participant i unless t clerks are bad, so what counts for i is the t-th smallest of its trust in the
clerks: τ_i is low only where some t clerks are all little trusted. The committee maximises F = min_i τ_i, then
G = Σ_i τ_i; values within 1e-9 of the best are equal, and of these the first in order of ids is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product

import numpy as np
from numpy.typing import NDArray

from services.topology.errors import BadCommittee

Matrix = NDArray[np.float64]
Columns = tuple[int, ...]

TIE = 1e-9
MOST_COMMITTEES = 200_000
_BATCH_CELLS = 1 << 20


@dataclass(frozen=True, slots=True)
class Committee:
    """Clerks in order of id; how far the least trusting participant trusts them, and all participants together.

    `exhaustive` says whether every committee was tried.
    """

    clerks: tuple[int, ...]
    least_trust: float
    total_trust: float
    exhaustive: bool = True


NO_COMMITTEE = Committee((), 0.0, 0.0)


def choose_clerks(
    trust: Matrix,
    owners: Sequence[str],
    participants: Sequence[int],
    candidates: Sequence[int],
    clerks: int,
    threshold: int,
) -> Committee:
    """The best committee; `NO_COMMITTEE` where the candidates have too few owners.

    All committees are tried up to 200,000; beyond that the one of largest mean trust is bettered by swaps.

    Args:
        trust: combined trust of row i in column j, from 0 to 1; the diagonal is taken as 1.
        owners: of every device.
        participants, candidates: numbers of devices; a device's number is its place in the order of ids.
        clerks, threshold: m and t.
    """
    _check(trust, owners, participants=participants, candidates=candidates, clerks=clerks, threshold=threshold)
    columns = sorted(candidates)
    own_trust = np.array(trust, dtype=np.float64)
    np.fill_diagonal(own_trust, 1.0)
    search = _Search(own_trust[np.ix_(sorted(participants), columns)], threshold)
    groups = _by_owner([owners[device] for device in columns])
    if len(groups) < clerks:
        return NO_COMMITTEE
    exhaustive = _count(groups, clerks) <= MOST_COMMITTEES
    best, least, total = search.best(_committees(groups, clerks)) if exhaustive else _swapped(search, groups, clerks)
    return Committee(tuple(columns[at] for at in best), least, total, exhaustive)


def _check(
    trust: Matrix,
    owners: Sequence[str],
    participants: Sequence[int],
    candidates: Sequence[int],
    clerks: int,
    threshold: int,
) -> None:
    devices = len(owners)
    if trust.shape != (devices, devices) or not bool(np.all((trust >= 0.0) & (trust <= 1.0))):
        raise BadCommittee(f"trust must be {devices} rows of {devices} values from 0 to 1, as many as owners are given")
    for name, chosen in (("participants", participants), ("candidates", candidates)):
        if len(set(chosen)) != len(chosen) or any(not 0 <= device < devices for device in chosen):
            raise BadCommittee(f"{name} are numbers of devices from 0 to {devices - 1}, none twice")
    if not participants:
        raise BadCommittee("a sum needs at least one participant")
    if not 2 <= threshold <= clerks:
        raise BadCommittee(f"{clerks} clerks of whom any {threshold} open a sum are not offered; take 4 and 2")


class _Search:
    """Compares committees, given as columns of a matrix participants × candidates."""

    def __init__(self, trusting: Matrix, threshold: int) -> None:
        self.trusting, self._kth = trusting, threshold - 1

    def best(self, committees: Iterable[Columns]) -> tuple[Columns, float, float]:
        """The first of the best in lexicographic order, with its F and G."""
        ordered = sorted(committees)
        size = max(1, _BATCH_CELLS // (len(self.trusting) * len(ordered[0])))
        left = iter(ordered)
        values = [self._values(batch) for batch in iter(lambda: list(islice(left, size)), [])]
        least, total = (np.concatenate([value[part] for value in values]) for part in range(2))
        equal = least >= least.max() - TIE
        at = int(np.argmax(equal & (total >= total[equal].max() - TIE)))
        return ordered[at], float(least[at]), float(total[at])

    def _values(self, committees: Sequence[Columns]) -> tuple[Matrix, Matrix]:
        seen = self.trusting[:, np.array(committees)]  # participants × committees × clerks
        tau = np.partition(seen, self._kth, axis=2)[:, :, self._kth]
        return tau.min(axis=0), tau.sum(axis=0)


def _by_owner(owners: Sequence[str]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for column, owner in enumerate(owners):
        groups.setdefault(owner, []).append(column)
    return list(groups.values())


def _count(groups: Sequence[Sequence[int]], clerks: int) -> int:
    """Committees of different owners: the elementary symmetric polynomial of how many candidates each owner has."""
    ways = [1] + [0] * clerks
    for group in groups:
        for size in range(clerks, 0, -1):
            ways[size] += ways[size - 1] * len(group)
    return ways[clerks]


def _committees(groups: Sequence[Sequence[int]], clerks: int) -> Iterator[Columns]:
    """All committees of different owners, each ascending."""
    for chosen in combinations(groups, clerks):
        for members in product(*chosen):
            yield tuple(sorted(members))


def _swapped(search: _Search, groups: Sequence[Sequence[int]], clerks: int) -> tuple[Columns, float, float]:
    """From the clerks of largest mean trust, the best swap of one clerk for another until none helps."""
    mean = search.trusting.mean(axis=0)
    # The best candidate of each owner, then the best owners.
    tops = sorted(
        (min(group, key=lambda column: (-mean[column], column)) for group in groups), key=lambda c: (-mean[c], c)
    )
    present, least, total = search.best([tuple(sorted(tops[:clerks]))])
    owner = {column: number for number, group in enumerate(groups) for column in group}
    while True:
        swaps = {
            tuple(sorted((*rest, into)))
            for rest in combinations(present, clerks - 1)
            for into in owner
            if owner[into] not in {owner[member] for member in rest}
        } - {present}
        best, best_least, best_total = search.best(swaps)
        # Only a real gain goes on, so that equal committees do not take turns for ever.
        if not (best_least > least + TIE or (best_least >= least and best_total > total + TIE)):
            return present, least, total
        present, least, total = best, best_least, best_total
