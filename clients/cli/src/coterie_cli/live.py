"""A live bar of a task: round, quorum, accuracy, time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from coterie.client import Platform
from coterie_cli.console import err
from coterie_cli.progress import Standing, watch


def follow(platform: Platform, task_id: str, on_change: Callable[[Standing], None] | None = None) -> Standing:
    """Shows a task until it has ended; its last standing."""
    with _bar() as show:
        for standing in watch(platform, task_id):
            show(standing)
            if on_change is not None:
                on_change(standing)
    return standing


@contextmanager
def _bar() -> Iterator[Callable[[Standing], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[facts]}"))
    with Progress(*columns, console=err, expand=True) as progress:
        bar = progress.add_task("", total=None, facts="")

        def show(standing: Standing) -> None:
            progress.update(
                bar,
                description=f"[bold]{escape(standing.task.specification.name[:20])}[/]",
                total=standing.total,
                completed=standing.done,
                facts=facts_of(standing, time.time()),
            )

        yield show


def facts_of(standing: Standing, now: float) -> str:
    """What the bar says beside its length."""
    current = standing.current
    if current is None:
        needed = standing.task.specification.min_devices
        return f"{standing.task.enrolled} devices enrolled, {needed} needed"
    parts = [f"round {current.number}/{standing.total}"]
    if current.attempt > 1:
        parts.append(f"attempt {current.attempt}")
    parts.append(f"updates {current.delivered}/{current.participants} (quorum {current.quorum})")
    accuracy, loss = standing.metric("accuracy"), standing.metric("loss")
    if accuracy is not None:
        parts.append(f"accuracy {accuracy[0]:.1%}{_of(accuracy[1])}")
    elif loss is not None:
        parts.append(f"loss {loss[0]:.4g}{_of(loss[1])}")
    left = standing.seconds_left(now)
    if left is not None and not standing.ended:
        parts.append(f"{left:.0f} s left")
    return "  ".join(parts)


def _of(version: int) -> str:
    return f" (v{version})" if version >= 0 else ""
