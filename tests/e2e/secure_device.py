"""A device in secure sums, in a process that a test can kill: python -m tests.e2e.secure_device HOME TASK.

With a third argument it kills itself at that place: "prepared" (charged and noted, not stored), "stored" (not sent), or
the name of a duty, just before it reports its work as a clerk.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.agent.agent import Agent
from coterie.agent.home import Outbox
from coterie.agent.report import Delivery
from coterie.privacy.ledger import Limit
from coterie.strategies.context import RoundContext
from coterie.strategies.star import Star

LIMIT = Limit(1e6, 1e-5, "device", allow_raw=True)
TOLD = {"offer": "put_key_offer", "ready_check": "put_ready_check", "agree": "put_commit", "answer": "put_answer"}


class Learner:
    """A trainer that needs no torch: training moves the model in a direction drawn from the round's seed alone."""

    samples = 10

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def load(self, tensors: Mapping[str, Any]) -> None:
        self.state = dict(tensors)

    def evaluate(self) -> dict[str, float]:
        return {"loss": 0.5}

    def train(self, recipe: Any, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.state = {
            name: (self.state[name] + 0.1 * draw.standard_normal(self.state[name].shape)).astype(np.float32)
            for name in sorted(self.state)
        }

    def parameters(self) -> dict[str, Any]:
        return self.state


class Masked:
    """The star's own procedure with that trainer."""

    def prepare(self, context: RoundContext) -> Delivery:
        training: Any = Learner()
        return Star().prepare(replace(context, training=training))


def agent_in(home: Path, **options: Any) -> Agent:
    return Agent(home, samples=10, limit=LIMIT, poll_seconds=1.0, choose=lambda work: Masked(), **options)


def die(*_: object, **__: object) -> None:
    (Path(sys.argv[1]) / "died").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    home, place = Path(sys.argv[1]), sys.argv[3] if len(sys.argv) > 3 else ""
    agent = agent_in(home)
    if place == "prepared":
        Outbox.put = die  # type: ignore[assignment, method-assign]
    elif place == "stored":
        agent.platform.put_update = die  # type: ignore[assignment, method-assign]
    elif place:
        from coterie.client import Platform

        setattr(Platform, TOLD[place], die)
    agent.join(sys.argv[2])
    print(agent.run())


if __name__ == "__main__":
    main()
