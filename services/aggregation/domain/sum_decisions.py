"""The platform's decisions in a secure sum: the survivors, the clerks to believe, and the conduct of devices.

Ready checks give a committee Q and survivors S; answers give one believed digest per share. All functions are pure, so
every replica decides alike.
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
    """Ask the clerks of `committee` again, with these candidates."""

    committee: frozenset[int]
    candidates: Devices


@dataclass(frozen=True, slots=True)
class Settled:
    """All of `committee` can serve exactly these survivors, and they are enough."""

    committee: frozenset[int]
    survivors: Devices


@dataclass(frozen=True, slots=True)
class TooFewSurvivors:
    """The clerks together can serve fewer devices than the terms require; a new session is needed."""

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
    """Choose the step after the ready checks so far of one list of candidates.

    ready: the candidates that each clerk, by position, can serve. asked: the asked clerks: all at first, Q in later
    ready checks. Clerks still silent when patience ends leave, while q remain.
    """
    served = {at: frozenset(devices) & frozenset(candidates) for at, devices in ready.items() if at in asked}
    if len(served) < len(set(asked)) and not (patience_over and len(served) >= quorum):
        return Wait()
    while True:
        common = _common(served)
        left_out = _slanderer(served, common, len(candidates), least) if len(served) > quorum else None
        if left_out is None:
            break
        del served[left_out]
    if len(common) < least:
        return TooFewSurvivors(common)
    if all(devices == common for devices in served.values()):
        return Settled(frozenset(served), common)
    return CheckAgain(frozenset(served), common)


def may_join(ready: Collection[str], survivors: Collection[str]) -> bool:
    """Whether a clerk outside Q can serve the survivors all the same."""
    return set(survivors) <= set(ready)


def _common(served: Mapping[int, Devices]) -> Devices:
    return frozenset.intersection(*served.values()) if served else frozenset()


def _slanderer(served: Mapping[int, Devices], common: Devices, candidates: int, least: int) -> int | None:
    """Return the clerk whose removal adds the most common devices, if more than one or two cheating devices explain.

    So a cheating device excludes itself, and a slandering clerk itself.
    """
    best, most = None, 0
    for position in sorted(served, reverse=True):  # ties: highest position
        without = len(_common({at: devices for at, devices in served.items() if at != position}))
        gain = without - len(common)
        helps = gain > max(1.0, candidates / 10) or len(common) < least <= without
        if helps and gain > most:
            best, most = position, gain
    return best


# --- shares -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Votes:
    """The count of the reported share sums.

    Attributes:
        checked: digest of each share on which t believed clerks agree, so that one of them is honest.
        majority: digest of each other share on which a strict majority of the believed clerks agrees.
        unsettled: shares without either.
        outvoted: clerks that t others contradict on some share; believed on no share.
    """

    checked: Mapping[int, bytes]
    majority: Mapping[int, bytes]
    unsettled: frozenset[int]
    outvoted: frozenset[int]

    def believed(self, *, unchecked: bool) -> dict[int, bytes] | None:
        """Return the believed digest of every share; None if some share has none."""
        if self.unsettled or (self.majority and not unchecked):
            return None
        return {**self.checked, **self.majority}


def count_votes(reported: Mapping[int, Mapping[int, bytes]], clerks: int, threshold: int) -> Votes:
    """Count digests by share; `reported` holds them by clerk's position and share."""
    shares = range(comb(clerks, threshold - 1))
    outvoted = {at for share in shares for at in _contradicting(reported, share, threshold)}
    checked: dict[int, bytes] = {}
    majority: dict[int, bytes] = {}
    for share in shares:
        votes = Counter(digests[share] for at, digests in reported.items() if at not in outvoted and share in digests)
        value, count = votes.most_common(1)[0] if votes else (b"", 0)
        if count >= threshold and sum(other >= threshold for other in votes.values()) == 1:
            checked[share] = value
        elif 2 * count > votes.total():
            majority[share] = value
    return Votes(checked, majority, frozenset(shares) - checked.keys() - majority.keys(), frozenset(outvoted))


def _contradicting(reported: Mapping[int, Mapping[int, bytes]], share: int, threshold: int) -> list[int]:
    """Return the clerks that t others contradict on a share."""
    votes = Counter(digests[share] for digests in reported.values() if share in digests)
    sure = [value for value, count in votes.items() if count >= threshold]
    if len(sure) != 1:  # two such values: at least t clerks lie, and none can be identified
        return []
    return [at for at, digests in reported.items() if share in digests and digests[share] != sure[0]]


def is_whole_answer(position: int, shares: Collection[int], clerks: int, threshold: int) -> bool:
    """Whether a clerk reported exactly the shares it holds."""
    return sorted(shares) == held_shares(clerks, threshold, position)


# --- the sum ----------------------------------------------------------------------------------------------------------


def fault_of_sum(extent: Extent, survivors: int, terms: Terms) -> str | None:
    """Explain why a sum of this extent cannot come from honest devices; None if it can."""
    if terms.noise == 0.0:
        return extent.clear_fault(survivors, terms.count)
    return extent.fault(survivors, terms.grid())


# --- conduct ----------------------------------------------------------------------------------------------------------


def rejected_devices(faults: Mapping[int, Mapping[str, FaultKind]], threshold: int) -> frozenset[str]:
    """Return devices that t or more clerks fault for their conduct; other excluded devices are merely dropped."""
    counts = Counter(device for by_device in faults.values() for device, kind in by_device.items() if kind != "company")
    return frozenset(device for device, count in counts.items() if count >= threshold)
