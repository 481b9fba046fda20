"""What model versions measured: figures belong to the version they are of, and their means to the samples measured.

Every device's figures are its own claim, and so is the number of samples behind them: it counts up to 10 times the
median claim. In a task that draws its devices by lot, a fixed panel measures every version, so that a mean does not
jump because others were asked.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from services.aggregation.domain.bounds import TIMES_MEDIAN

SAMPLES = "samples"
"""The figure that says how many samples the others were measured on."""
MOST_SAMPLES = float(1 << 53)
"""More samples than anybody measures; a larger claim would overflow where claims are added up."""
PANEL = 100
"""Devices that measure every version of a task that draws its devices by lot."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one device measured of a model version."""

    task_id: str
    line: int
    version: int
    device_id: str
    samples: float
    metrics: dict[str, float]
    measured_at: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of a model version: means of so many devices' figures, over so many samples."""

    metrics: dict[str, float]
    devices: int
    samples: float


def split(metrics: Mapping[str, float], enrolled_samples: float) -> tuple[float, dict[str, float]]:
    """Samples measured (as many as the device enrolled with, unless it says) and the figures themselves."""
    told = metrics.get(SAMPLES, 0.0)
    return (min(told, MOST_SAMPLES) if told >= 1.0 else enrolled_samples), {
        k: v for k, v in metrics.items() if k != SAMPLES
    }


def counted(samples: Mapping[str, float]) -> dict[str, float]:
    """How many of the samples each device claims to have measured count."""
    if not samples:
        return {}
    most = TIMES_MEDIAN * statistics.median(samples.values())
    return {device: min(claimed, most) for device, claimed in samples.items()}


def means(parts: Iterable[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """Mean of every figure, each weighted by the samples behind it; within the figures, however large they are."""
    told: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for samples, metrics in parts:
        for name, value in metrics.items():
            told[name].append((samples, value))
    weight = {name: sum(samples for samples, _ in values) for name, values in told.items()}
    return {
        name: sum(value * (samples / weight[name]) for samples, value in told[name])
        for name in sorted(told)
        if weight[name] > 0
    }


def figures(measured: Sequence[Measurement], panel: Collection[str] = ()) -> Figures:
    """What devices measured of one version together; of those in the panel alone, where one measured it."""
    told = [each for each in measured if each.metrics]
    seated = [each for each in told if each.device_id in panel]
    told = seated or told
    weights = counted({each.device_id: each.samples for each in told})
    found = means((weights[each.device_id], each.metrics) for each in told)
    return Figures(found, len(told), sum(weights.values()))


def draw_panel(devices: Iterable[str], seed: int, most: int = PANEL) -> set[str]:
    """The devices that measure every version: the same ones as long as they are there, whoever joins or leaves."""

    def place(device: str) -> bytes:
        return hashlib.sha256(f"panel:{seed}:{device}".encode()).digest()

    return set(sorted(devices, key=place)[:most])
