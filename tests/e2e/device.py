"""A device of the tests in its own process, without torch: `python -m tests.e2e.device HOME TASK PAUSE`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from coterie.agent.agent import Agent
from coterie.agent.report import Delivery
from coterie.strategies.context import RoundContext
from tests.e2e.device_group import NO_PAUSE, SAMPLES, Seeded

PAUSE_SECONDS = float(sys.argv[3])


class Slow(Seeded):
    """Takes its time over each round."""

    def prepare(self, context: RoundContext) -> Delivery:
        time.sleep(PAUSE_SECONDS)
        return super().prepare(context)


def main() -> None:
    """Joins the task and works until it ends."""
    agent = Agent(Path(sys.argv[1]), samples=SAMPLES, poll_seconds=1.0, choose=lambda work: Slow("", NO_PAUSE))
    agent.join(sys.argv[2])
    print(agent.run())


if __name__ == "__main__":
    main()
