"""A device of the tests in a process of its own: `python -m tests.e2e.device HOME TASK PAUSE`. It starts without torch.

Its update depends on nothing but the round, its name and the model received, so a run can be repeated bit for bit.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from coterie.agent import Agent
from coterie.procedures.context import RoundContext
from coterie.work import Delivery

PAUSE_SECONDS = float(sys.argv[3])


class Seeded:
    """Moves the model a little in a direction drawn from the round's seed."""

    def prepare(self, context: RoundContext) -> Delivery:
        model = load_file(context.fetch(context.work.model_digests[0]))
        draw = np.random.default_rng(context.seed)
        change = {name: draw.standard_normal(value.shape).astype(value.dtype) for name, value in model.items()}
        time.sleep(PAUSE_SECONDS)
        return Delivery(change, float(context.samples), metrics={"loss": float(np.abs(model["bias"]).mean())})


def main() -> None:
    """Joins the task and works until it ends."""
    agent = Agent(Path(sys.argv[1]), samples=10, choose=lambda work: Seeded())
    agent.join(sys.argv[2])
    print(agent.run())


if __name__ == "__main__":
    main()
