"""Shared by the examples: publish a task and run its devices in one process.

Needs a platform: `coterie up` in the same folder, or one that `COTERIE_URL` and an admin's `COTERIE_API_KEY` name.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie import Agent, Learner, Platform
from coterie.agent.fleet import Fleet, FleetSummary
from coterie.agent.results import RoundResult


def play(name: str, model: bytes, learners: Sequence[Learner], **specification: Any) -> FleetSummary:
    """Publish a task that starts from `model`, run all devices, and print each round's mean metrics."""
    url = os.environ.get("COTERIE_URL", "http://127.0.0.1:8080")
    key = os.environ.get("COTERIE_API_KEY") or Path(".coterie/admin.key").read_text().strip()
    figures: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def note(agent: Agent, result: RoundResult) -> None:
        for figure, value in result.metrics.items():
            figures[result.round][figure].append(value)

    with (
        Platform(url, key) as platform,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
    ):
        task = platform.create_task(
            name=f"{name}-{secrets.token_hex(3)}",
            model_digests=[platform.upload_model(model)],
            min_devices=len(learners),
            auto_start=True,
            **specification,
        )
        token = platform.issue_token(platform.create_owner("examples").id, uses=len(learners)).token
        fleet = Fleet.register(url, token, learners, folder=folder, prefix=task.specification.name, poll_seconds=2.0)
        fleet.join(task.id)
        summary = fleet.run(note)
    for number, metrics in sorted(figures.items()):
        line = ", ".join(f"{figure} {sum(values) / len(values):.4g}" for figure, values in sorted(metrics.items()))
        print(f"round {number}: {line}")
    print(summary)
    return summary
