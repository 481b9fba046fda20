"""A live bar of a task: round, quorum, accuracy, time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as ProgressBar

from coterie.client import Platform
from coterie_cli.console import err
from coterie_cli.progress import TaskProgress, watch


def follow(platform: Platform, task_id: str, on_change: Callable[[TaskProgress], None] | None = None) -> TaskProgress:
    """Show a live bar until the task has ended; return its final progress."""
    with _bar() as show:
        for progress in watch(platform, task_id):
            show(progress)
            if on_change is not None:
                on_change(progress)
    return progress


@contextmanager
def _bar() -> Iterator[Callable[[TaskProgress], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[facts]}"))
    with ProgressBar(*columns, console=err, expand=True) as bar:
        line = bar.add_task("", total=None, facts="")

        def show(progress: TaskProgress) -> None:
            bar.update(
                line,
                description=f"[bold]{escape(progress.task.specification.name[:20])}[/]",
                total=progress.total,
                completed=progress.done,
                facts=facts_of(progress, time.time()),
            )

        yield show


def facts_of(progress: TaskProgress, now: float) -> str:
    """Return the text beside the bar."""
    current = progress.current
    if current is None:
        needed = progress.task.specification.min_devices
        return f"{progress.task.enrolled} devices enrolled, {needed} needed"
    parts = [f"round {current.number}/{progress.total}"]
    if current.attempt > 1:
        parts.append(f"attempt {current.attempt}")
    parts.append(f"updates {current.delivered}/{current.participants} (quorum {current.quorum})")
    accuracy, loss = progress.metric("accuracy"), progress.metric("loss")
    if accuracy is not None:
        parts.append(f"accuracy {accuracy[0]:.1%}{_of(accuracy[1])}")
    elif loss is not None:
        parts.append(f"loss {loss[0]:.4g}{_of(loss[1])}")
    left = progress.seconds_left(now)
    if left is not None and not progress.has_ended:
        parts.append(f"{left:.0f} s left")
    return "  ".join(parts)


def _of(version: int) -> str:
    return f" (v{version})" if version >= 0 else ""
