"""What model versions measured: figures belong to the version they are of, and their means to the samples measured.

Every device's figures are its own claim, and so is the number of samples behind them: it counts up to 10 times the
median claim. In a task that draws its devices by lot, a fixed panel measures every version, so that a mean does not
jump because others were asked.

A mean is for reading: one liar moves it. What ends a task, or is fitted to, is what owners agree on: a figure that more
than half of them have, or a better one, each owner with one vote that its devices share, however many they are and
however many samples they claim.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from services.aggregation.domain.bounds import TIMES_MEDIAN

SAMPLES = "samples"
"""The figure that holds how many samples the others were measured on."""
MOST_SAMPLES = float(1 << 53)
"""Upper bound on a claim of samples; sums of larger claims would overflow."""
PANEL = 100
"""Devices that measure every version of a task that draws its devices by lot."""
SEVERAL = 3
"""Devices and owners that must have measured a version before they agree on anything; all, where fewer take part."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The figures of a model version that one device measured."""

    task_id: str
    line: int
    version: int
    device_id: str
    samples: float
    metrics: dict[str, float]
    measured_at: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Means of a model version's figures, with the number of devices and samples behind them.

    `agreed` is what owners agree on, of all model lines of the version together.
    """

    metrics: dict[str, float]
    devices: int
    samples: float
    agreed: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Voters:
    """Who takes part in a task: the owner of each device that ever did, and who is there now."""

    owners: Mapping[str, str]
    here: Collection[str]

    def suffice(self, devices: Collection[str]) -> bool:
        """Whether these devices are enough to agree: several, of several owners, or as many as are there."""
        owners = {self.owner(device) for device in devices}
        most = {self.owner(device) for device in self.here}
        return len(set(devices)) >= min(SEVERAL, len(self.here)) and len(owners) >= min(SEVERAL, len(most))

    def owner(self, device: str) -> str:
        """Return the owner whose vote a device shares; the device itself where no owner is known."""
        return self.owners.get(device) or device


def split(metrics: Mapping[str, float], enrolled_samples: float) -> tuple[float, dict[str, float]]:
    """Split reported metrics into samples measured (by default those the device enrolled with) and figures."""
    claimed = metrics.get(SAMPLES, 0.0)
    return (min(claimed, MOST_SAMPLES) if claimed >= 1.0 else enrolled_samples), {
        k: v for k, v in metrics.items() if k != SAMPLES
    }


def counted(samples: Mapping[str, float]) -> dict[str, float]:
    """Return the samples that count of each device's claim."""
    if not samples:
        return {}
    most = TIMES_MEDIAN * statistics.median(samples.values())
    return {device: min(claimed, most) for device, claimed in samples.items()}


def means(parts: Iterable[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """Mean of every figure, each weighted by the samples behind it; within the figures, however large they are."""
    terms: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for samples, metrics in parts:
        for name, value in metrics.items():
            terms[name].append((samples, value))
    weight = {name: sum(samples for samples, _ in values) for name, values in terms.items()}
    return {
        name: sum(value * (samples / weight[name]) for samples, value in terms[name])
        for name in sorted(terms)
        if weight[name] > 0
    }


def figures(measured: Sequence[Measurement], panel: Collection[str] = ()) -> Figures:
    """Return the means of one version's measurements; of the panel's alone, where a panel member measured it."""
    reports = [item for item in measured if item.metrics]
    seated = [item for item in reports if item.device_id in panel]
    reports = seated or reports
    weights = counted({item.device_id: item.samples for item in reports})
    result = means((weights[item.device_id], item.metrics) for item in reports)
    return Figures(result, len(reports), sum(weights.values()))


def agreed(
    measured: Sequence[Measurement], voters: Voters, better: Callable[[str], str], panel: Collection[str] = ()
) -> dict[str, float]:
    """Return of each figure the best value that more than half of the owners reach; skip figures of too few devices.

    Votes of the panel go before the others', where they suffice. The value is the best v with
    Σ vote(reported v or better) > Σ vote / 2: liars with at most half of the votes cannot make it better than the best
    value that an honest device reported.
    """
    values: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for item in measured:
        for name, value in item.metrics.items():
            values[name].append((value, item.device_id))
    result = {}
    for name, reports in sorted(values.items()):
        seated = [(value, device) for value, device in reports if device in panel]
        groups = (group for group in (seated, reports) if group)
        some = next((group for group in groups if voters.suffice({device for _, device in group})), None)
        if some is not None:
            shared = Counter(voters.owner(device) for _, device in some)
            votes = [(value, 1.0 / shared[voters.owner(device)]) for value, device in some]
            result[name] = _most_have(sorted(votes, reverse=better(name) == "up"))
    return result


def _most_have(votes: Sequence[tuple[float, float]]) -> float:
    """Return the first of these values, best first, at which the votes so far exceed half of all."""
    half, counted_votes = 0.5 * sum(vote for _, vote in votes), 0.0
    for value, vote in votes:
        counted_votes += vote
        if counted_votes > half * (1.0 + 1e-9):  # shares of an owner's vote add up to 1 but for rounding
            return value
    return votes[-1][0]


def draw_panel(devices: Iterable[str], seed: int, most: int = PANEL) -> set[str]:
    """Return the devices that measure every version: a member stays while it is enrolled, whatever others do."""

    def place(device: str) -> bytes:
        return hashlib.sha256(f"panel:{seed}:{device}".encode()).digest()

    return set(sorted(devices, key=place)[:most])
