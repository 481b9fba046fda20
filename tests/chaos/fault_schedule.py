"""Faults, one after the other, drawn from a seed: the same seed brings the same faults in the same order.

When each of them meets the platform is a matter of the machine's speed; what it is, of the seed alone.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

from tests.chaos.deployment import LINKS, NAMES, Deployment
from tests.chaos.proxy import Trouble

CLOCKS = (0.0, 10.0, -10.0, 600.0, -600.0, -3600.0)
"""By how much a process's clock may be off after a restart."""


class FaultSchedule:
    """Inject faults into a deployment; `history` lists them for the failure message."""

    def __init__(self, deployment: Deployment, seed: int) -> None:
        self._deployment, self._draw = deployment, random.Random(seed)
        self.history: list[str] = []
        self._kinds: list[tuple[Callable[[], None], int]] = [
            (self._kill, 8),
            (self._kill_two, 2),
            (self._stop, 4),
            (self._disturb, 6),
            (self._restart_database, 1),
            (self._fill_disk, 1 if deployment.disk_is_small else 0),
        ]

    def inject(self, is_over: Callable[[], bool], most: int) -> None:
        """Inject at most `most` faults until `is_over`, then heal the deployment."""
        kinds, weights = zip(*self._kinds, strict=True)
        try:
            for _ in range(most):
                time.sleep(self._draw.uniform(0.2, 1.5))
                if is_over():
                    return
                self._draw.choices(kinds, weights)[0]()
        finally:
            self._deployment.heal()

    def _record(self, what: str) -> None:
        self.history.append(what)

    def _kill(self) -> None:
        self._kill_these(self._draw.sample(NAMES, 1))

    def _kill_two(self) -> None:
        self._kill_these(self._draw.sample(NAMES, 2))

    def _kill_these(self, names: list[str]) -> None:
        away = self._draw.uniform(0.0, 1.5)
        clocks = [self._draw.choice(CLOCKS) for _ in names]
        self._record(f"kill {' and '.join(names)}, away {away:.1f} s, clocks then off by {clocks}")
        for name in names:
            self._deployment.kill(name)
        time.sleep(away)
        for name, clock in zip(names, clocks, strict=True):
            self._deployment.clocks[name] = clock
            self._deployment.start(name)

    def _stop(self) -> None:
        name, seconds = self._draw.choice(NAMES), self._draw.uniform(1.0, 9.0)
        self._record(f"stop {name} for {seconds:.1f} s")
        self._deployment.signal(name, signal.SIGSTOP)
        time.sleep(seconds)
        self._deployment.signal(name, signal.SIGCONT)

    def _disturb(self) -> None:
        name, seconds = self._draw.choice(LINKS), self._draw.uniform(0.5, 4.0)
        # Bytes between services are TLS's to guard on real networks; those of devices by their digests.
        kinds = [item for item in Trouble if item is not Trouble.CALM]
        if not name.startswith("gateway"):
            kinds.remove(Trouble.CORRUPTION)
        trouble = self._draw.choice(kinds)
        self._record(f"{trouble.value} before {name} for {seconds:.1f} s")
        self._deployment.links[name].suffer(trouble)
        time.sleep(seconds)
        self._deployment.links[name].suffer(Trouble.CALM)

    def _restart_database(self) -> None:
        seconds = self._draw.uniform(0.0, 3.0)
        self._record(f"database away for {seconds:.1f} s")
        self._deployment.restart_database(seconds)

    def _fill_disk(self) -> None:
        seconds = self._draw.uniform(0.5, 3.0)
        self._record(f"disk full for {seconds:.1f} s")
        self._deployment.fill_disk()
        time.sleep(seconds)
        self._deployment.free_disk()
