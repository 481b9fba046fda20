"""The publisher's evaluator: reports the worth of models, from which the platform computes contributions.

evaluate(platform, task_id, worth)      # worth(tensors) -> float, on examples that stay on this machine
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.client import Platform
from coterie.errors import Conflict
from coterie.learning.tensor_files import load_file

Tensors = dict[str, NDArray[np.floating[Any]]]
Worth = Callable[[Tensors], float]
WAIT_SECONDS = 20.0


def evaluate(
    platform: Platform,
    task_id: str,
    worth: Worth,
    *,
    on_round: Callable[[int, int, int], None] = lambda round, players, models: None,
) -> int:
    """Answer all questions about a task until it has ended; return the number of valued rounds.

    `on_round` gets the number, players and evaluated models of each valued round.
    """
    rounds = 0
    while True:
        asked = platform.evaluation(task_id, wait_seconds=WAIT_SECONDS)
        if asked.ended:
            return rounds
        if not asked.model_digest:
            continue
        path = platform.download_model(asked.model_digest)
        worths = [float(worth(tensors)) for tensors in _unstacked(load_file(path), asked.models)]
        path.unlink(missing_ok=True)  # many small files, each used once
        try:
            reply = platform.answer_evaluation(task_id, asked.round, asked.model_digest, worths)
        except Conflict:
            continue  # another evaluator was faster, or the round waits no more
        if reply.is_valued:
            rounds += 1
            on_round(asked.round, asked.players, reply.known)


def _unstacked(stacked: Tensors, models: int) -> Iterator[Tensors]:
    for place in range(models):
        yield {name: values[place] for name, values in stacked.items()}
