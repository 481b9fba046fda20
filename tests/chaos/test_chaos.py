"""Faults injected into two gateways and two aggregation servers: the task ends as it would without them.

The seed of a run is drawn, printed with any finding, and taken from `CHAOS_SEED` when that is set.
"""

from __future__ import annotations

import dataclasses
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.checks import check, model_of
from tests.chaos.deployment import Deployment, deployment
from tests.chaos.fault_schedule import FaultSchedule
from tests.chaos.plays import PATIENCE_SECONDS, PLAYS, Play, RoundInputs

SEED = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
QUICK = {"fedavg": 1, "clusters": 8}
"""Seeds whose first faults are of different kinds: a silent link, a full disk, a stopped process, killed ones."""
QUICK_FAULTS, QUICK_ROUNDS = 4, 3
MOST_FAULTS = int(os.environ.get("CHAOS_FAULTS") or 20)
SLOWER = 10.0
"""How much longer than without faults a task may take once the faults are over."""
RUNS = int(os.environ.get("CHAOS_RUNS") or 1)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment(tmp_path_factory.mktemp("chaos"), SEED) as result:
        yield result


def compare_with_faults(platform: Deployment, play: Play, seed: int, faults: int, folder: Path) -> str:
    """Run a task without and with faults, compare both, and return a one-line summary."""
    name, ended, took, seconds = f"CHAOS_SEED={seed} {play.title}", {}, [], PATIENCE_SECONDS
    schedule = FaultSchedule(platform, seed)
    for run in ("calm", "rough"):
        platform.wait_until_ready()
        with RoundInputs(platform, play, folder / run) as company:
            began = time.monotonic()
            task_id = company.publish()
            company.start(task_id)
            if run == "rough":
                schedule.inject(company.has_ended, faults)
            try:
                ended[run] = company.end(task_id, seconds)
                check(platform, company, ended[run])
            except AssertionError as error:
                story = "\n".join(schedule.history)
                raise AssertionError(f"{name}, {run}: {error}\n{story}") from error
            took.append(time.monotonic() - began)
            # A busy machine is as slow with faults as it was without.
            seconds = max(seconds, SLOWER * took[-1])
    attempts = {item.attempt for run in ended.values() for item in platform.admin.rounds(run.id)}
    if play.repeats and attempts == {1}:
        same = model_of(platform, ended["calm"]) == model_of(platform, ended["rough"])
        assert same, f"{name}: another model\n" + "\n".join(schedule.history)
    rough = f"{took[1]:.0f} s with {len(schedule.history)} faults, attempts at a round {sorted(attempts)}"
    return f"{name}: calm {took[0]:.0f} s, rough {rough}, no finding"


@pytest.mark.parametrize("preset", QUICK)
def test_task_with_faults_ends_as_without(platform: Deployment, tmp_path: Path, preset: str) -> None:
    play = dataclasses.replace(PLAYS[preset], rounds=QUICK_ROUNDS, thought_seconds=0.1)
    print(compare_with_faults(platform, play, QUICK[preset], QUICK_FAULTS, tmp_path))


def test_failed_run_leaves_no_device_behind(platform: Deployment, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(AssertionError, match="on purpose"), RoundInputs(platform, PLAYS["fedavg"], tmp_path) as company:
        company.start(company.publish())
        raise AssertionError("on purpose")
    assert company.has_ended()
    assert set(threading.enumerate()) <= before


@pytest.mark.slow
@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("preset", PLAYS)
def test_every_preset_survives_faults(platform: Deployment, tmp_path: Path, preset: str, run: int) -> None:
    print(compare_with_faults(platform, PLAYS[preset], SEED + run, MOST_FAULTS, tmp_path))
