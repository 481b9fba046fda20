"""What model versions measured: figures belong to the version they are of, and their means to the samples measured.

Every device's figures are its own claim, and so is the number of samples behind them: it counts up to 10 times the
median claim. In a task that draws its devices by lot, a fixed panel measures every version, so that a mean does not
jump because others were asked.

A mean is for reading: one liar moves it. What ends a task, or is fitted to, is what owners agree on: a figure that more
than half of them have, or a better one, each owner with one say that its devices share, however many they are and
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
"""The figure that says how many samples the others were measured on."""
MOST_SAMPLES = float(1 << 53)
"""More samples than anybody measures; a larger claim would overflow where claims are added up."""
PANEL = 100
"""Devices that measure every version of a task that draws its devices by lot."""
SEVERAL = 3
"""Devices and owners that must have measured a version before they agree on anything; all, where fewer take part."""


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
    """What is known of a model version: means of so many devices' figures, over so many samples.

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

    def suffice(self, told: Collection[str]) -> bool:
        """Whether these devices are enough to agree: several, of several owners, or as many as are there."""
        owners = {self.owner(device) for device in told}
        most = {self.owner(device) for device in self.here}
        return len(set(told)) >= min(SEVERAL, len(self.here)) and len(owners) >= min(SEVERAL, len(most))

    def owner(self, device: str) -> str:
        """Whose say a device shares; its own where no owner is known."""
        return self.owners.get(device) or device


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
    told = [item for item in measured if item.metrics]
    seated = [item for item in told if item.device_id in panel]
    told = seated or told
    weights = counted({item.device_id: item.samples for item in told})
    result = means((weights[item.device_id], item.metrics) for item in told)
    return Figures(result, len(told), sum(weights.values()))


def agreed(
    measured: Sequence[Measurement], voters: Voters, better: Callable[[str], str], panel: Collection[str] = ()
) -> dict[str, float]:
    """What more than half of the owners have of each figure, or a better one; without figures too few told of.

    Those in the panel are asked before the others, where they suffice. The best value v with Σ say(told v or better)
    > Σ say / 2, so liars with half of the say or less can make it no better than one that an honest device told.
    """
    values: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for item in measured:
        for name, value in item.metrics.items():
            values[name].append((value, item.device_id))
    result = {}
    for name, told in sorted(values.items()):
        seated = [(value, device) for value, device in told if device in panel]
        some = next((some for some in (seated, told) if some and voters.suffice({device for _, device in some})), None)
        if some is not None:
            shared = Counter(voters.owner(device) for _, device in some)
            says = [(value, 1.0 / shared[voters.owner(device)]) for value, device in some]
            result[name] = _most_have(sorted(says, reverse=better(name) == "up"))
    return result


def _most_have(says: Sequence[tuple[float, float]]) -> float:
    """The first of these values, best first, that more than half of the say is for, or for a better one."""
    half, said = 0.5 * sum(say for _, say in says), 0.0
    for value, say in says:
        said += say
        if said > half * (1.0 + 1e-9):  # shares of an owner's say add up to 1 but for rounding
            return value
    return says[-1][0]


def draw_panel(devices: Iterable[str], seed: int, most: int = PANEL) -> set[str]:
    """Return the devices that measure every version: a member stays while it is enrolled, whatever others do."""

    def place(device: str) -> bytes:
        return hashlib.sha256(f"panel:{seed}:{device}".encode()).digest()

    return set(sorted(devices, key=place)[:most])
