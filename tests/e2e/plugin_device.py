"""A device of the plug-in test: `python -m tests.e2e.plugin_device HOME TASK STEP` adds STEP to every parameter."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from coterie.agent.agent import Agent
from coterie.learning.training_config import Instructions
from tests.e2e.real_platform import SHAPES


class Steps:
    """A learner without data: every training adds the same step."""

    samples = 10

    def __init__(self, step: float) -> None:
        self.step, self.tensors = step, {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}

    def parameters(self) -> dict[str, npt.NDArray[np.float32]]:
        return {name: value.copy() for name, value in self.tensors.items()}

    def load(self, tensors: Mapping[str, npt.NDArray[np.float32]]) -> None:
        self.tensors = {name: np.array(value) for name, value in tensors.items()}

    def train(self, instructions: Instructions, seed: int) -> None:
        for value in self.tensors.values():
            value += np.float32(self.step)

    def evaluate(self) -> dict[str, float]:
        return {}


def main() -> None:
    """Join the task and work until it ends."""
    agent = Agent(Path(sys.argv[1]), learner=Steps(float(sys.argv[3])), poll_seconds=1.0)
    agent.join(sys.argv[2])
    print(agent.run())


if __name__ == "__main__":
    main()
