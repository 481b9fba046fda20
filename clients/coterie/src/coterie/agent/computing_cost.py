"""The cost of a round's computing on this device: measured locally, priced by the owner, never sent.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks, section 2.4:
C = κξfDL for ξ cycles per sample, a clock of f, D samples and L passes over them. Cycles are processor time times the
clock's frequency. Energy comes from the system's counter (Linux powercap, where readable), shared by processor time,
or is estimated as κ′ξf²DL joules. The owner prices computing by κ or by the joule.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SYSTEM = Path("/")
CAPACITANCE = 1e-28
"""κ′, joules per cycle and squared hertz of a usual chip, where energy is not counted."""
ASSUMED_HERTZ = 1e9
"""Where the system does not tell its clock."""
_NEWEST = 0.5
"""Weight of the newest measurement."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """The owner's price: `kappa`, credits per cycle and hertz ([MPPFL]'s κ), or `credits_per_joule`; 0 = none."""

    kappa: float = 0.0
    credits_per_joule: float = 0.0
    capacitance: float = CAPACITANCE

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and not negative, got {value}")


@dataclass(frozen=True, slots=True)
class Effort:
    """What one sample of one pass took: ξ cycles at f hertz, and joules where the system counts them."""

    cycles_per_sample: float
    hertz: float
    joules_per_sample: float | None = None

    def __post_init__(self) -> None:
        for value in (self.cycles_per_sample, self.hertz, self.joules_per_sample or 0.0):
            if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise ValueError(f"an effort holds numbers that are not negative, got {value}")

    def cost(self, tariff: Tariff, samples: int, passes: int) -> float:
        """C in credits: κξfDL, and the price of its energy."""
        times = samples * passes
        joules = self.joules_per_sample
        if joules is None:
            joules = tariff.capacitance * self.cycles_per_sample * self.hertz**2
        return times * (tariff.kappa * self.cycles_per_sample * self.hertz + tariff.credits_per_joule * joules)

    def after(self, earlier: Effort | None) -> Effort:
        """This measurement and what was known before, the newest counting half."""
        if earlier is None:
            return self
        joules = self.joules_per_sample
        if joules is not None and earlier.joules_per_sample is not None:
            joules = _blend(joules, earlier.joules_per_sample)
        cycles = _blend(self.cycles_per_sample, earlier.cycles_per_sample)
        return Effort(cycles, _blend(self.hertz, earlier.hertz), joules)


@dataclass(slots=True)
class Meter:
    """Counts what a stretch of work takes: `with Meter() as meter: …`, then `meter.effort(samples)`."""

    system: Path = SYSTEM
    seconds: float = 0.0
    joules: float | None = None
    _began: tuple[float, float | None, float] = field(default=(0.0, None, 0.0))

    def __enter__(self) -> Meter:
        self._began = (_processor_seconds(), _energy(self.system), _busy_seconds(self.system))
        return self

    def __exit__(self, *_: object) -> None:
        began, energy, busy = self._began
        self.seconds = max(0.0, _processor_seconds() - began)
        now, all_busy = _energy(self.system), _busy_seconds(self.system) - busy
        if energy is not None and now is not None and now >= energy:  # unless the counter wrapped around
            share = min(1.0, self.seconds / all_busy) if all_busy > 0 else 1.0
            self.joules = share * (now - energy)

    def effort(self, samples: int) -> Effort:
        """Return the effort per sample."""
        item = max(1, samples)
        hertz = frequency(self.system)
        joules = None if self.joules is None else self.joules / item
        return Effort(self.seconds * hertz / item, hertz, joules)


def frequency(system: Path = SYSTEM) -> float:
    """Mean clock of the processors, hertz; `ASSUMED_HERTZ` where the system has no figure."""
    clocks_khz = [_number(path) for path in system.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq")]
    clocks = [1e3 * value for value in clocks_khz if value]
    if not clocks:
        clocks = [1e6 * value for value in _listed(system / "proc/cpuinfo", "cpu MHz")]
    return sum(clocks) / len(clocks) if clocks else ASSUMED_HERTZ


def tariff_of(private: Mapping[str, Any]) -> Tariff | None:
    """The owner's price of computing in the device's private settings; None without one."""
    given = private.get("computing")
    return None if given is None else Tariff(**given)


def effort_of(private: Mapping[str, Any]) -> Effort | None:
    """What was measured before; None before anything was."""
    given = private.get("effort")
    return None if given is None else Effort(**given)


def _blend(new: float, old: float) -> float:
    return _NEWEST * new + (1.0 - _NEWEST) * old


def _processor_seconds() -> float:
    """Of this thread, times the threads that torch computes in: several devices may live in one process."""
    torch = sys.modules.get("torch")
    return time.thread_time() * (torch.get_num_threads() if torch is not None else 1)


def _energy(system: Path) -> float | None:
    """Joules the processor packages have used since some time; None where it has no counter."""
    counters = [_number(path) for path in sorted(system.glob("sys/class/powercap/intel-rapl:[0-9]/energy_uj"))]
    counted = [value for value in counters if value is not None]
    return sum(counted) / 1e6 if counted else None


def _busy_seconds(system: Path) -> float:
    """Processor time that all processes have used."""
    try:
        fields = (system / "proc/stat").read_text().splitlines()[0].split()[1:]
        user, nice, kernel = (int(value) for value in fields[:3])
    except (OSError, ValueError, IndexError):
        return 0.0
    return (user + nice + kernel) / os.sysconf("SC_CLK_TCK")


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


def _listed(path: Path, name: str) -> list[float]:
    try:
        lines = [line.partition(":") for line in path.read_text().splitlines()]
        return [float(value) for key, _, value in lines if key.strip() == name]
    except (OSError, ValueError):
        return []
