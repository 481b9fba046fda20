"""What must hold after any faults: rounds in order, all paid and charged once, books sound, nothing left over."""

from __future__ import annotations

import os
import time
from collections import Counter

from coterie.records import Task
from tests.chaos.deployment import Deployment
from tests.chaos.plays import PATIENCE_SECONDS, RoundInputs

DAY_SECONDS = 86_400.0
MOST_RESTARTS = 200
MOST_LOG_LINES = 20_000
"""A service that runs away fills its log first."""


def model_of(deployment: Deployment, task: Task) -> list[bytes]:
    """A task's last models."""
    return [deployment.admin.download_model(digest).read_bytes() for digest in task.model_digests]


def check(deployment: Deployment, company: RoundInputs, task: Task) -> None:
    """Everything that holds of one ended task and its platform."""
    assert task.state == "finished", f"{task.state}: {task.reason}\n{deployment.logs()}"
    _rounds_are_monotone(deployment, company, task)
    _paid_once(deployment, company, task)
    _charged_once(deployment, company, task)
    assert deployment.admin.verify_book().sound
    assert deployment.admin.verify_audit().sound
    _nothing_is_left_over(deployment, task)
    _nothing_runs_away(deployment)


def _rounds_are_monotone(deployment: Deployment, company: RoundInputs, task: Task) -> None:
    rounds = list(deployment.admin.rounds(task.id))
    assert [item.number for item in rounds] == list(range(1, company.play.rounds + 1))
    assert {item.state for item in rounds} == {"done"}
    numbers = [event.round for event in deployment.admin.events(task.id) if event.kind.startswith("round.")]
    assert numbers == sorted(numbers)
    assert (
        max(Counter((e.kind, e.round) for e in deployment.admin.events(task.id) if e.kind == "round.closed").values())
        == 1
    )


def _paid_once(deployment: Deployment, company: RoundInputs, task: Task) -> None:
    payments = list(deployment.admin.payments(task=task.id))
    twice = [place for place, count in Counter((p.round, p.device_id) for p in payments).items() if count > 1]
    assert not twice, f"paid twice: {twice}"
    paid = sum(payment.amount_microcredits for payment in payments)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while deployment.admin.account(f"escrow:{task.id}").balance_microcredits if company.play.escrow else 0:
        assert time.monotonic() < deadline, "the escrow was not released"
        time.sleep(0.2)
    if company.play.escrow:
        assert deployment.admin.account(company.account).balance_microcredits == company.play.escrow - paid


def _charged_once(deployment: Deployment, company: RoundInputs, task: Task) -> None:
    """The platform charges a round once, and never more than the device's own ledger does."""
    delivered: Counter[str] = Counter()
    for entry in deployment.admin.rounds(task.id):
        parts = deployment.admin.round(task.id, entry.number).participations
        delivered.update(part.device_id for part in parts if part.state == "delivered")
    for agent in company.agents:
        device = agent.identity.id
        charged = sum(item.rounds for item in deployment.admin.privacy(device).tasks if item.task_id == task.id)
        spent = agent.home.ledger().spent()
        own = spent.releases + spent.raw_releases
        assert charged <= delivered[device], f"{agent.identity.name}: {charged} rounds charged of {delivered[device]}"
        assert charged <= own, f"{agent.identity.name}: {charged} rounds charged, its own ledger has {own}"


def _nothing_is_left_over(deployment: Deployment, task: Task) -> None:
    """After a sweep all that is stored is needed, and all that is needed is stored.

    A process that dies between bytes and the row that names them leaves the bytes; that is what the sweep is for.
    """
    yesterday = time.time() - 2 * DAY_SECONDS
    for path in deployment.blobs.rglob("*"):
        if path.is_file():
            os.utime(path, (yesterday, yesterday))
    deployment.admin.sweep_blobs(dry_run=False)
    assert deployment.admin.sweep_blobs(dry_run=True).orphans == 0
    there = {path.name for path in deployment.blobs.rglob("*") if path.is_file()}
    made = {model.digest for model in deployment.admin.models(task.id)}
    assert made <= there, "models are gone"
    assert len(there) <= len(made) + 8 * len(list(deployment.admin.tasks())), (
        f"{len(there)} blobs for {len(made)} models"
    )


def _nothing_runs_away(deployment: Deployment) -> None:
    assert deployment.restarts < MOST_RESTARTS, f"{deployment.restarts} processes ended by themselves"
    for path in (deployment.folder / "logs").glob("*.log"):
        lines = path.read_text(errors="replace").count("\n")
        assert lines < MOST_LOG_LINES, f"{path.name} has {lines} lines"
