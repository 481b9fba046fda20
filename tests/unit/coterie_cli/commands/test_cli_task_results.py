"""What the command says of a task's versions, in 80 columns: each with its own figures, or that it was not measured."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie.records import Event, Measurement, Model, ReplayedRound, Round, Stop, Task, TaskSpecification
from coterie_cli.commands import results
from coterie_cli.commands import task as task_commands
from coterie_cli.main import app
from tests.answers import made

Run = Callable[..., str]


class Platform:
    """A task of two rounds whose last version was not measured."""

    def __init__(
        self,
        folder: Path,
        best: int | None = None,
        disputed: int = 0,
        state: str = "finished",
        parts: int = 3,
        again: str = "",
        stop: Stop | None = None,
    ) -> None:
        self.folder, self.disputed, self.parts, self.again = folder, disputed, parts, again
        spec = made(TaskSpecification, name="digits", rounds=2, stop=stop)
        self.known = made(
            Task, id="tsk_digits", specification=spec, state=state, reason="all 2 rounds are done", best_version=best
        )

    def find_task(self, name: str) -> Task:
        return self.known

    def task(self, task_id: str) -> Task:
        return self.known

    def rounds(self, task_id: str) -> list[Round]:
        common = {"state": "done", "participants": self.parts, "delivered": self.parts, "attempt": 1}
        common |= {"opened_at": 1.0, "done_at": 2.5}
        return [
            made(Round, number=1, metrics={"accuracy": 0.1}, **common),
            made(Round, number=2, metrics={"accuracy": 0.6}, disputed=self.disputed, **common),
        ]

    def replay(self, task_id: str) -> list[ReplayedRound]:
        replayed = (self.again,) if self.again else ()
        return [made(ReplayedRound, round=1, model_digests=("a",), replayed_digests=replayed, same=self.again == "a")]

    def models(self, task_id: str) -> list[Model]:
        figures: Sequence[dict[str, float]] = [{"accuracy": 0.1, "loss": 2.3}, {"accuracy": 0.6, "loss": 1.2}, {}]
        return [made(Model, version=n, digest=f"{n:064x}", metrics=item, agreed=item) for n, item in enumerate(figures)]

    def measurements(self, task_id: str, version: int, *, line: int = 0) -> list[Measurement]:
        return [made(Measurement, device_id="dev_1", samples=30.0, metrics={"accuracy": 0.5 + version / 10})]

    def events(self, task_id: str, *, after: int = 0, wait_seconds: float = 0.0) -> tuple[Event, ...]:
        kinds = ("task.created", "round.opened", "task.finished")
        events = [made(Event, number=n, kind=kind, message=kind) for n, kind in enumerate(kinds, start=1)]
        return tuple(event for event in events if event.number > after)

    def download_model(self, digest: str) -> Path:
        path = self.folder / "fetched"
        path.write_text(digest)
        return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    def call(*arguments: str, code: int = 0, **about: object) -> str:
        @contextmanager
        def connect(url: str, key: str) -> Iterator[Platform]:
            yield Platform(tmp_path, **about)  # type: ignore[arg-type]

        monkeypatch.setattr(results, "connect", connect)
        monkeypatch.setattr(task_commands, "connect", connect)
        result = CliRunner().invoke(app, ["task", *arguments], env={"COLUMNS": "80"})
        assert result.exit_code == code, (result.output, result.exception)
        return result.output

    return call


def test_each_version_stands_with_its_own_figures(run: Run) -> None:
    lines = run("results", "digits").splitlines()
    assert lines[0] == "digits (tsk_digits) finished: all 2 rounds are done"
    assert lines[1].split() == ["version", "updates", "accuracy", "↑", "loss", "↓", "seconds", "digest"]
    assert lines[2].split() == ["0", "–", "10.0%", "2.3", "–", "000000000000"]
    assert lines[3].split() == ["1", "3/3", "60.0%", "1.2", "1.50", "000000000000"]
    assert lines[4].split() == ["2", "3/3", "not", "measured", "not", "measured", "1.50", "000000000000"]
    assert len(lines) == 5, "no line is wrapped in 80 columns"


def test_agreed_metric_of_the_stop_rule_is_shown_beside_the_mean(run: Run) -> None:
    stop = Stop(metric="accuracy", at=0.9, patience=0, better="up")
    lines = run("results", "digits", stop=stop).splitlines()
    columns = ["version", "updates", "accuracy", "↑", "loss", "↓", "agreed", "accuracy", "↑", "seconds", "digest"]
    assert lines[1].split() == columns
    assert lines[3].split() == ["1", "3/3", "60.0%", "1.2", "60.0%", "1.50", "000000000000"]
    assert len(lines) == 5, "no line is wrapped in 80 columns"


def test_the_best_version_is_marked_and_any_can_be_saved(run: Run, tmp_path: Path) -> None:
    assert [line for line in run("results", "digits", best=1).splitlines() if line.startswith("1 best")]
    saved = tmp_path / "model"
    for asked, version in (("best", 1), ("0", 0), ("", 2)):
        run("results", "digits", "--save", str(saved), *(["--round", asked] if asked else []), best=1)
        assert int(saved.read_text(), 16) == version


@pytest.mark.parametrize("asked", ["best", "7", "-1", "first"])
def test_a_version_that_is_not_there_is_refused(run: Run, tmp_path: Path, asked: str) -> None:
    run("results", "digits", "--save", str(tmp_path / "model"), "--round", asked, code=1)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("disputed", [0, 2])
def test_disputed_verdicts_are_shown_where_there_are_any(run: Run, disputed: int) -> None:
    lines = run("results", "digits", disputed=disputed).splitlines()
    assert ("disputed" in lines[1]) == bool(disputed)
    assert lines[-1].split()[1] == ("2" if disputed else "3/3")


def test_csv_has_every_version_and_leaves_open_what_was_not_measured(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("results", "digits", "--csv", "-"))))
    assert [(row["version"], row["accuracy"], row["delivered"]) for row in rows] == [
        ("0", "0.1", ""),
        ("1", "0.6", "3"),
        ("2", "", "3"),
    ]


def test_publisher_sees_device_metrics_of_the_newest_measured_version(run: Run) -> None:
    lines = run("figures", "digits").splitlines()
    assert lines[0] == "digits, version 1"
    assert lines[2].split() == ["dev_1", "30", "60.0%"]
    assert "70.0%" in run("figures", "digits", "--round", "2")


def test_events_are_in_order_and_filtered_by_kind(run: Run) -> None:
    assert [line.split()[1] for line in run("events", "digits").splitlines()] == [
        "task.created",
        "round.opened",
        "task.finished",
    ]
    assert [json.loads(line)["kind"] for line in run("events", "digits", "--kind", "task", "--json").splitlines()] == [
        "task.created",
        "task.finished",
    ]


def test_watching_an_ended_task_prints_all_its_events(run: Run) -> None:
    printed = [json.loads(line) for line in run("watch", "digits", "--json").splitlines()]
    assert [event["number"] for event in printed] == [1, 2, 3]


def test_a_list_of_tasks_wraps_nothing_in_eighty_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = made(TaskSpecification, name="kitchen-phones", rounds=100)
    task = made(
        Task, id="tsk_" + "0" * 26, specification=spec, state="running", round=100, enrolled=1000, created_at=1.0
    )
    monkeypatch.setattr(Platform, "tasks", lambda self, state="": [task], raising=False)
    lines = run("list").splitlines()
    assert len(lines) == 2
    assert lines[1].split()[:5] == [task.id, "kitchen-phones", "running", "100/100", "1000"]


def test_rounds_of_a_pruned_task_show_no_count_of_deliveries(run: Run) -> None:
    assert "3/3" in run("results", "digits")
    assert "0/0" not in run("results", "digits", parts=0)


def test_replay_fails_when_bits_differ_and_when_nothing_could_be_compared(run: Run) -> None:
    assert "identical" in run("replay", "digits", again="a")
    assert "with different bits" in run("replay", "digits", again="b", code=1)
    assert "0 of 1 rounds replayed" in run("replay", "digits", code=1)
