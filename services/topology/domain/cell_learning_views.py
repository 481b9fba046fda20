"""What one station knows when it decides: its own delays, its tasks, data sizes and the registered layout. [DPVD]

A local view never holds another station's measured delays. With `rivals` it holds what registration makes common
knowledge: everyone's positions and tasks, hence the *mean* channel to every station. With `plan` it also holds which
station owns each device by a plan that every station can compute alone from that knowledge (`ownership`).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtr

from services.topology.domain.radio import delays
from services.topology.domain.scheduling import Cells, InvalidSchedule

Prior = Literal["none", "rivals", "plan"]

MOST_ACTIONS = 20_000
"""Sets a learner may enumerate per station; beyond it only the pointer head is practical."""


LEAST_SET = 2
"""Devices in the smallest set a set head considers, where there are as many."""


class TooManyActions(InvalidSchedule):
    """The set head would have to enumerate too many sets of devices."""


@dataclass(frozen=True, slots=True)
class Views:
    """Turns states into the stations' inputs. fixed: the part that does not fade, (station, device, feature).

    planned: (station, device), who owns whom by the common plan; all False unless the prior is "plan".
    """

    cells: Cells
    fixed: NDArray[np.float32]
    planned: NDArray[np.bool_]

    @classmethod
    def of(cls, cells: Cells, prior: Prior, *, named: bool = True) -> Views:
        """named: each device has its own one-hot; without it the same weights read any devices' views."""
        stations, users = cells.handled.shape
        if not users:
            raise InvalidSchedule("the layout has no device; register at least one before training a policy")
        size = cells.samples / max(float(cells.samples.max()), 1.0)
        columns = [
            cells.handled[:, :, None],
            np.broadcast_to(size[:, None], (stations, users, 1)),
        ]
        if named:
            columns.append(np.broadcast_to(np.eye(users), (stations, users, users)))
        if prior != "none":
            columns += [_rivals(cells), np.broadcast_to(cells.shares[:, None], (stations, users, 1))]
        planned = np.zeros((stations, users), dtype=bool)
        if prior == "plan":
            planned = ownership(cells)
            columns.append(planned[:, :, None])
        return cls(cells, np.concatenate(columns, axis=2).astype(np.float32), planned)

    @property
    def features(self) -> int:
        """Numbers per device in a view."""
        return int(self.fixed.shape[2]) + 1

    def best(self, delay: NDArray[np.float64]) -> NDArray[np.float32]:
        """log(best block's delay / limit), clipped to ±5, (state, station, device): the part that fades."""
        quickest = delay.min(axis=3, initial=np.inf)
        ratio = np.clip(quickest / self.cells.limits[:, None], math.exp(-5), math.exp(5))
        faded: NDArray[np.float32] = np.log(ratio).astype(np.float32)
        return faded

    def assemble(self, best: NDArray[np.float32]) -> NDArray[np.float32]:
        """The full views, (state, station, device, feature), from what `best` gave."""
        fixed = np.broadcast_to(self.fixed, (len(best), *self.fixed.shape))
        return np.concatenate([best[..., None], fixed], axis=3)


def ownership(cells: Cells) -> NDArray[np.bool_]:
    """(station, device): the one station that may claim each device, from registered knowledge alone.

    Devices go to station × block slots so that the expected data served, X_i/X_task · P(delay ≤ Γ), is largest; who
    finds no slot belongs, as a spare, to the station most likely to reach it. With one owner each, no device is picked
    twice.
    """
    chance = _reach(cells)
    stations, users, blocks = chance.shape
    owner = np.zeros((stations, users), dtype=bool)
    slots = (chance * cells.shares[:, None]).transpose(1, 0, 2).reshape(users, -1)
    rows, columns = linear_sum_assignment(slots, maximize=True)
    retained = slots[rows, columns] > 0
    owner[columns[retained] // max(blocks, 1), rows[retained]] = True
    best = chance.max(axis=2, initial=0.0)
    spare = np.flatnonzero(~owner.any(axis=0) & (best > 0).any(axis=0))
    owner[best[:, spare].argmax(axis=0), spare] = True
    return owner


def _reach(cells: Cells) -> NDArray[np.float64]:
    """P(delay ≤ Γ) of each (station, device, block) under the registered log-normal fading; 0 where not handled."""
    layout = cells.layout
    chance = np.zeros((*cells.handled.shape, layout.blocks))
    for b, station in enumerate(layout.stations):
        width = station.bandwidth_hertz
        need = np.exp2(layout.payload_bits / (width * station.delay_limit_seconds)) - 1.0  # the least SINR
        noise = np.array(station.interference_watts) + width * layout.noise_density
        least_gain = need * noise / station.power_watts
        margin = -10.0 * np.log10(least_gain * layout.distances()[b][:, None] ** 2)  # decibels to spare
        certain = (margin >= 0).astype(float)
        fading = layout.fading_decibels
        chance[b, :, : station.blocks] = ndtr(margin / fading) if fading > 0 else certain
    return chance * cells.handled[:, :, None]


def _rivals(cells: Cells) -> NDArray[np.float64]:
    """(station, device, 2): log(quickest rival's mean delay / own), clipped to ±2, and the share of usable rivals."""
    quickest = delays(cells.layout).min(axis=2, initial=np.inf)
    usable = cells.handled & (quickest <= cells.limits[:, None])
    stations = len(quickest)
    answer = np.zeros((*quickest.shape, 2))
    for b in range(stations):
        others = np.arange(stations) != b
        rival = np.where(usable[others], quickest[others], np.inf).min(axis=0, initial=np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            margin = np.log(rival) - np.log(quickest[b])
        answer[b, :, 0] = np.clip(np.nan_to_num(margin, nan=0.0), -2.0, 2.0)
        answer[b, :, 1] = usable[others].sum(axis=0) / max(stations - 1, 1)
    return answer


def check_sets(users: int, least: int, most: int) -> int:
    """How many sets of `least`..`most` of `users` devices there are; raises where they are too many to look at."""
    most = min(most, users)
    count = sum(math.comb(users, size) for size in range(min(least, most), most + 1))
    if count > MOST_ACTIONS:
        raise TooManyActions(
            f"{count} sets of {least}..{most} among {users} devices exceed {MOST_ACTIONS}; use the pointer network, or "
            "fewer users"
        )
    return count


def all_sets(users: int, least: int, most: int) -> NDArray[np.bool_]:
    """Every set of `least`..`most` of `users` devices, one row each (781 for 12 devices, 2..4).

    With fewer devices or blocks than `least` the largest possible sets remain.
    """
    most = min(most, users)
    least = min(least, most)
    table = np.zeros((check_sets(users, least, most), users), dtype=bool)
    chosen = itertools.chain.from_iterable(itertools.combinations(range(users), k) for k in range(least, most + 1))
    for row, members in enumerate(chosen):
        table[row, list(members)] = True
    return table


def best_set(
    score: NDArray[np.float64], delay: NDArray[np.float64], handled: NDArray[np.bool_], limit: float
) -> NDArray[np.bool_]:
    """The set with the largest sum of positive scores that fits the station's own blocks: exact, by assignment.

    score: (device,).  delay: this station's, (device, block).  Devices it does not handle never enter.
    """
    slots = (delay <= limit) & (handled & (score > 0))[:, None]
    picks = np.zeros(len(score), dtype=bool)
    if slots.any():
        rows, columns = linear_sum_assignment(np.where(slots, score[:, None], 0.0), maximize=True)
        picks[rows[slots[rows, columns]]] = True
    return picks
