"""The stations' value functions: a set head as specified, and a pointer head whose best set is found exactly. [DPVD]

    set:      Q_b(s, a) = g_b( Σ_{i∈a} e_b(view_i) )          argmax by enumerating the sets
    pointer:  Q_b(s, a) = c_b + Σ_{i∈a} q_b(view_i)           argmax by one assignment on the station's own blocks

All stations' parameters are stacked along a first axis; no station reads another's.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from services.topology.domain.cell_learning_views import Views, all_sets, best_set

Bools = NDArray[np.bool_]


class Layers(nn.Module):
    """One hidden ReLU layer per station: (n, station, ..., inputs) → (n, station, ..., outputs)."""

    def __init__(self, stations: int, sizes: tuple[int, int, int], rng: np.random.Generator) -> None:
        super().__init__()
        inputs, width, outputs = sizes
        self.first = nn.Parameter(_uniform(rng, (stations, inputs, width), inputs))
        self.first_bias = nn.Parameter(_uniform(rng, (stations, 1, width), inputs))
        self.second = nn.Parameter(_uniform(rng, (stations, width, outputs), width))
        self.second_bias = nn.Parameter(_uniform(rng, (stations, 1, outputs), width))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(x @ self.first + self.first_bias)
        return hidden @ self.second + self.second_bias


class SetHead(nn.Module):
    """The specification's local net; width 48 is its default."""

    def __init__(self, views: Views, width: int, least: int, rng: np.random.Generator) -> None:
        super().__init__()
        stations, users = views.cells.handled.shape
        self.views = views
        self.element = Layers(stations, (views.features, width, width), rng)
        self.whole = Layers(stations, (width, width, 1), rng)
        self.sets = all_sets(users, least, views.cells.layout.blocks)
        self._membership = torch.from_numpy(self.sets.astype(np.float32))

    def value(self, views: Tensor, picks: Tensor) -> Tensor:
        """Q_b of one set per station: views (n, station, device, feature), picks (n, station, device)."""
        total = (self.element(views) * picks[..., None]).sum(dim=2, keepdim=True)
        value: Tensor = self.whole(total)[..., 0, 0]
        return value

    def scores(self, views: Tensor) -> Tensor:
        """Q_b of every set, (n, station, set)."""
        value: Tensor = self.whole(self._membership @ self.element(views))[..., 0]
        return value

    def best(self, views: Tensor) -> Tensor:
        """max_a Q_b, (n, station)."""
        return self.scores(views).max(dim=2).values

    def greedy(self, views: Tensor, delay: NDArray[np.float64]) -> Bools:
        """The best set of each station, (n, station, device). The delays are in the views already."""
        return np.asarray(self.sets[self.scores(views).argmax(dim=2).numpy()])

    def explore(
        self, station: int, greedy: Bools, delay: NDArray[np.float64], structured: float, rng: np.random.Generator
    ) -> Bools:
        """One station's other set: with probability `structured` one device of the greedy set moves, else any set."""
        if rng.random() >= structured or greedy.all() or not greedy.any():
            return np.asarray(self.sets[rng.integers(len(self.sets))])
        moved = greedy.copy()
        moved[rng.choice(np.flatnonzero(greedy))] = False
        moved[rng.choice(np.flatnonzero(~greedy))] = True
        return moved


class PointerHead(nn.Module):
    """One score per device; sets that cannot fit the station's own blocks and limit are never considered."""

    def __init__(self, views: Views, width: int, unit: float, idle: float, rng: np.random.Generator) -> None:
        """unit: reward per unit of value.  idle: initial value of serving no device, in rewards.

        Scores start at a planned device's data worth and 0 elsewhere: no other claim until a trial has paid.
        """
        super().__init__()
        cells = views.cells
        self.views = views
        self.element = Layers(len(cells.limits), (views.features, width, 1), rng)
        with torch.no_grad():
            self.element.second.zero_()
            self.element.second_bias.zero_()
        self.constant = nn.Parameter(torch.full((len(cells.limits),), idle / unit))
        worth = views.planned * cells.shares * cells.reward.scale * cells.reward.data_weight / unit
        self._start = torch.from_numpy(worth.astype(np.float32))

    def value(self, views: Tensor, picks: Tensor) -> Tensor:
        """Q_b of one set per station, (n, station)."""
        return self.constant + (self.scores(views) * picks).sum(dim=2)

    def scores(self, views: Tensor) -> Tensor:
        """q_b of every device, (n, station, device)."""
        score: Tensor = self._start + self.element(views)[..., 0]
        return score

    def best(self, views: Tensor) -> Tensor:
        """An upper estimate of max_a Q_b: the R largest positive scores among handled devices, (n, station)."""
        handled = torch.from_numpy(self.views.cells.handled)
        score = torch.where(handled, torch.relu(self.scores(views)), 0.0)
        most = min(self.views.cells.layout.blocks, score.shape[2])
        return self.constant + score.topk(most, dim=2).values.sum(dim=2)

    def greedy(self, views: Tensor, delay: NDArray[np.float64]) -> Bools:
        """The best set of each station that fits its own measured delays, (n, station, device)."""
        score = self.scores(views).numpy().astype(float)
        return np.stack([[self._fit(b, q, d[b]) for b, q in enumerate(s)] for s, d in zip(score, delay, strict=True)])

    def explore(
        self, station: int, greedy: Bools, delay: NDArray[np.float64], structured: float, rng: np.random.Generator
    ) -> Bools:
        """One station's other set: with probability `structured` one device forced in or out, else any fitting set."""
        cells = self.views.cells
        usable = np.flatnonzero(cells.handled[station] & (delay.min(axis=1, initial=np.inf) <= cells.limits[station]))
        if rng.random() >= structured or not usable.size:
            return self._fit(station, rng.uniform(-1.0, 1.0, len(greedy)), delay)
        score = np.where(greedy, 1.0, 0.0)
        device = rng.choice(usable)
        score[device] = 0.0 if greedy[device] else len(greedy) + 1.0
        return self._fit(station, score, delay)

    def _fit(self, station: int, score: NDArray[np.float64], delay: NDArray[np.float64]) -> Bools:
        cells = self.views.cells
        return best_set(score, delay, cells.handled[station], float(cells.limits[station]))


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], inputs: int) -> Tensor:
    bound = 1.0 / math.sqrt(max(inputs, 1))
    return torch.from_numpy(rng.uniform(-bound, bound, shape).astype(np.float32))
