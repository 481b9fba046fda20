"""Whom to serve when the platform sees every delay: matching (the default), greedy, random; and why others wait. [DPVD]

`matching` gives devices to station × block slots in one assignment problem on their data shares, then solves the noise
per station. It ignores the noise part while assigning, so it is near-optimal, not a strict bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from coterie.records.enums import ScheduleStatus
from services.topology.domain.cell_noise import bounded_noise
from services.topology.domain.radio import NO_TASK
from services.topology.domain.scheduling import NO_STATION, Cells, Floats, Outcome, Picks

DeviceStatus = Literal[
    "served", "no data", "no model", "no cell for its model", "out of range", "crowded out", "passed"
]
"""Why a device is or is not served. "crowded out": the reachable blocks went to others. "passed": a block it could use
stayed free, but the policy left it out."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A round's answer: per device its station, block, noise σ, zCDP budget ρ and the reason; +inf ρ never appears.

    noise and budget are 0 for devices not served. reward: the decision's value.
    """

    station: NDArray[np.int64]
    block: NDArray[np.int64]
    noise: Floats
    budget: Floats
    device_status: tuple[DeviceStatus, ...]
    status: ScheduleStatus
    reward: float


def matching(cells: Cells, delay: Floats) -> Picks:
    """The (station, device) picks of the assignment that serves most data, then least delay.

    Delay only breaks ties: all delays together weigh less than 1e-6 of the smallest share. O((U + B·R)³).
    """
    admissible = _admissible(cells, delay)
    stations, users, blocks = delay.shape
    picks = np.zeros((stations, users), dtype=bool)
    if not admissible.any():
        return picks
    slots = admissible.transpose(1, 0, 2).reshape(users, -1)
    seconds = np.where(slots, delay.transpose(1, 0, 2).reshape(users, -1), 0.0)
    positive = cells.shares[cells.shares > 0]
    tie = 1e-6 * float(positive.min()) / (1.0 + float(seconds.max()) * min(slots.shape))
    gain = np.where(slots, cells.shares[:, None] - tie * seconds, 0.0)
    rows, columns = linear_sum_assignment(gain, maximize=True)
    retained = slots[rows, columns]
    picks[columns[retained] // blocks, rows[retained]] = True
    return picks


def greedy(cells: Cells, delay: Floats) -> Picks:
    """Devices by decreasing data share, each to the quickest free block that can carry it."""
    return _one_by_one(cells, delay, np.argsort(-cells.shares, kind="stable"), None)


def at_random(cells: Cells, delay: Floats, rng: np.random.Generator) -> Picks:
    """Devices in random order, each to a random free block that can carry it."""
    return _one_by_one(cells, delay, rng.permutation(len(cells.shares)), rng)


def schedule(
    cells: Cells, delay: Floats, picks: Picks, *, low: ArrayLike | None = None, high: ArrayLike | None = None
) -> Schedule:
    """The full answer for some picks: blocks, noise within optional per-device bounds, and a reason for everyone."""
    outcome = cells.decide(delay, picks)
    noise, budget = np.zeros(len(cells.samples)), np.zeros(len(cells.samples))
    for b in range(len(cells.limits)):
        members = np.flatnonzero(outcome.station == b)
        plan = bounded_noise(
            cells.samples[members],
            cells.reward.noise,
            low=None if low is None else np.asarray(low, dtype=float)[members],
            high=None if high is None else np.asarray(high, dtype=float)[members],
        )
        noise[members], budget[members] = plan.noise, plan.budget
    reasons = _reasons(cells, delay, outcome)
    served = sum(reason == "served" for reason in reasons)
    some = ScheduleStatus.COMPLETE if served == len(reasons) else ScheduleStatus.PARTIAL
    status = some if served else ScheduleStatus.EMPTY
    return Schedule(
        station=outcome.station,
        block=outcome.block,
        noise=noise,
        budget=budget,
        device_status=reasons,
        status=status,
        reward=outcome.reward,
    )


def _admissible(cells: Cells, delay: Floats) -> NDArray[np.bool_]:
    """(station, device, block): handled, and within the station's limit."""
    within: NDArray[np.bool_] = (delay <= cells.limits[:, None, None]) & cells.handled[:, :, None]
    return within


def _one_by_one(cells: Cells, delay: Floats, order: NDArray[np.int64], rng: np.random.Generator | None) -> Picks:
    admissible = _admissible(cells, delay)
    free = np.ones((delay.shape[0], delay.shape[2]), dtype=bool)
    picks = np.zeros(delay.shape[:2], dtype=bool)
    for user in order:
        slots = np.argwhere(admissible[:, user] & free)
        if not len(slots):
            continue
        index = int(np.argmin(delay[slots[:, 0], user, slots[:, 1]])) if rng is None else int(rng.integers(len(slots)))
        station, block = slots[index]
        free[station, block] = False
        picks[station, user] = True
    return picks


def _reasons(cells: Cells, delay: Floats, outcome: Outcome) -> tuple[DeviceStatus, ...]:
    admissible = _admissible(cells, delay)
    free = np.ones((delay.shape[0], delay.shape[2]), dtype=bool)
    served = np.flatnonzero(outcome.station != NO_STATION)
    free[outcome.station[served], outcome.block[served]] = False
    reasons: list[DeviceStatus] = []
    for i, user in enumerate(cells.layout.users):
        if outcome.station[i] != NO_STATION:
            reasons.append("served")
        elif user.samples == 0:
            reasons.append("no data")
        elif user.task == NO_TASK:
            reasons.append("no model")
        elif not cells.handled[:, i].any():
            reasons.append("no cell for its model")
        elif not admissible[:, i].any():
            reasons.append("out of range")
        else:
            reasons.append("passed" if (admissible[:, i] & free).any() else "crowded out")
    return tuple(reasons)
