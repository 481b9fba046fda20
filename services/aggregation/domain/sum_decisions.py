"""What the platform decides in a secure sum: who survives, which clerks to believe, and who behaved how.

Ready checks become a committee Q and survivors S; answers become one believed digest for every share. All of it is a
function of what the clerks said, so every replica decides alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import comb

from coterie.secure_sums.grid import Extent
from coterie.secure_sums.letters import FaultKind
from coterie.secure_sums.masks import held_shares
from coterie.secure_sums.terms import Terms

Devices = frozenset[str]

# --- survivors --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wait:
    """Not enough clerks have checked yet."""


@dataclass(frozen=True, slots=True)
class CheckAgain:
    """The clerks `committee` are asked again, with these candidates."""

    committee: frozenset[int]
    candidates: Devices


@dataclass(frozen=True, slots=True)
class Settled:
    """All of `committee` can serve exactly these survivors, and they are enough."""

    committee: frozenset[int]
    survivors: Devices


@dataclass(frozen=True, slots=True)
class TooFewSurvivors:
    """What the clerks can serve together is less than the terms promise; a new session is needed."""

    common: Devices


ReadyCheckStep = Wait | CheckAgain | Settled | TooFewSurvivors


def judge_ready_checks(
    ready: Mapping[int, Collection[str]],
    asked: Collection[int],
    candidates: Collection[str],
    *,
    least: int,
    quorum: int,
    patience_over: bool,
) -> ReadyCheckStep:
    """What to do after the ready checks so far of one list of candidates.

    ready: what each clerk, by position, can serve of the candidates.
    asked: clerks asked: all at first, Q in later ready checks. Who is silent when patience ends leaves, while q remain.
    """
    said = {at: frozenset(devices) & frozenset(candidates) for at, devices in ready.items() if at in asked}
    if len(said) < len(set(asked)) and not (patience_over and len(said) >= quorum):
        return Wait()
    while True:
        common = _common(said)
        left_out = _slanderer(said, common, len(candidates), least) if len(said) > quorum else None
        if left_out is None:
            break
        del said[left_out]
    if len(common) < least:
        return TooFewSurvivors(common)
    if all(devices == common for devices in said.values()):
        return Settled(frozenset(said), common)
    return CheckAgain(frozenset(said), common)


def may_join(ready: Collection[str], survivors: Collection[str]) -> bool:
    """Whether a clerk outside Q can serve the survivors all the same."""
    return set(survivors) <= set(ready)


def _common(said: Mapping[int, Devices]) -> Devices:
    return frozenset.intersection(*said.values()) if said else frozenset()


def _slanderer(said: Mapping[int, Devices], common: Devices, candidates: int, least: int) -> int | None:
    """The clerk without whom the most devices are common, if that is more than a cheating device or two explain.

    A cheating device loses its own place by this, a slandering clerk its own.
    """
    best, most = None, 0
    for position in sorted(said, reverse=True):  # ties: highest position
        without = len(_common({at: devices for at, devices in said.items() if at != position}))
        gain = without - len(common)
        helps = gain > max(1.0, candidates / 10) or len(common) < least <= without
        if helps and gain > most:
            best, most = position, gain
    return best


# --- shares -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Votes:
    """Where the count of the shares stands.

    Attributes:
        checked: digest of each share told alike by t clerks that are believed: one of them is honest.
        majority: digest of each other share that a strict majority of the believed told.
        unsettled: shares without either.
        outvoted: clerks that told a share otherwise than t others; believed on no share.
    """

    checked: Mapping[int, bytes]
    majority: Mapping[int, bytes]
    unsettled: frozenset[int]
    outvoted: frozenset[int]

    def believed(self, *, unchecked: bool) -> dict[int, bytes] | None:
        """The digest to take for every share; None where some share has none."""
        if self.unsettled or (self.majority and not unchecked):
            return None
        return {**self.checked, **self.majority}


def count_votes(told: Mapping[int, Mapping[int, bytes]], clerks: int, threshold: int) -> Votes:
    """Counts digests by share; `told` has them by clerk's position and share."""
    shares = range(comb(clerks, threshold - 1))
    outvoted = {at for share in shares for at in _contradicting(told, share, threshold)}
    checked: dict[int, bytes] = {}
    majority: dict[int, bytes] = {}
    for share in shares:
        votes = Counter(digests[share] for at, digests in told.items() if at not in outvoted and share in digests)
        value, count = votes.most_common(1)[0] if votes else (b"", 0)
        if count >= threshold and sum(other >= threshold for other in votes.values()) == 1:
            checked[share] = value
        elif 2 * count > votes.total():
            majority[share] = value
    return Votes(checked, majority, frozenset(shares) - checked.keys() - majority.keys(), frozenset(outvoted))


def _contradicting(told: Mapping[int, Mapping[int, bytes]], share: int, threshold: int) -> list[int]:
    """Clerks that told a share otherwise than t others did."""
    votes = Counter(digests[share] for digests in told.values() if share in digests)
    sure = [value for value, count in votes.items() if count >= threshold]
    if len(sure) != 1:  # two such values: more than t − 1 clerks lie, and nobody knows who
        return []
    return [at for at, digests in told.items() if share in digests and digests[share] != sure[0]]


def is_whole_answer(position: int, shares: Collection[int], clerks: int, threshold: int) -> bool:
    """Whether a clerk told exactly the shares it holds."""
    return sorted(shares) == held_shares(clerks, threshold, position)


# --- the sum ----------------------------------------------------------------------------------------------------------


def fault_of_sum(extent: Extent, survivors: int, terms: Terms) -> str | None:
    """Why a sum that reaches so far cannot be one of honest devices; None if it can."""
    if terms.noise == 0.0:
        return extent.clear_fault(survivors, terms.count)
    return extent.fault(survivors, terms.grid())


# --- conduct ----------------------------------------------------------------------------------------------------------


def rejected_devices(faults: Mapping[int, Mapping[str, FaultKind]], threshold: int) -> frozenset[str]:
    """Devices that t or more clerks fault for something they did; the others that are out are merely dropped."""
    counts = Counter(device for said in faults.values() for device, kind in said.items() if kind != "company")
    return frozenset(device for device, count in counts.items() if count >= threshold)
