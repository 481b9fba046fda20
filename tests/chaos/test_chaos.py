"""Bad weather over a deployment of two gateways and two aggregation servers: the task ends as if nothing had been.

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
from tests.chaos.plays import PATIENCE_SECONDS, PLAYS, Company, Play
from tests.chaos.weather import Weather

SEED = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
QUICK = {"fedavg": 1, "clusters": 8}
"""Seeds whose first faults are of different kinds: a silent link, a full disk, a stopped process, killed ones."""
QUICK_FAULTS, QUICK_ROUNDS = 4, 3
MOST_FAULTS = int(os.environ.get("CHAOS_FAULTS") or 20)
SLOWER = 10.0
"""How many times as long as in calm a task may take once the weather is over."""
RUNS = int(os.environ.get("CHAOS_RUNS") or 1)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment(tmp_path_factory.mktemp("chaos"), SEED) as found:
        yield found


def calm_then_rough(house: Deployment, play: Play, seed: int, faults: int, folder: Path) -> str:
    """Plays a task in calm weather and again in rough, and holds both against each other; how it was, in a line."""
    name, ended, took, seconds = f"CHAOS_SEED={seed} {play.title}", {}, [], PATIENCE_SECONDS
    weather = Weather(house, seed)
    for run in ("calm", "rough"):
        house.wait_until_ready()
        with Company(house, play, folder / run) as company:
            began = time.monotonic()
            task_id = company.publish()
            company.start(task_id)
            if run == "rough":
                weather.blow(company.has_ended, faults)
            try:
                ended[run] = company.end(task_id, seconds)
                check(house, company, ended[run])
            except AssertionError as error:
                story = "\n".join(weather.told)
                raise AssertionError(f"{name}, {run}: {error}\n{story}") from error
            took.append(time.monotonic() - began)
            # A busy machine is as slow in rough weather as it was in calm.
            seconds = max(seconds, SLOWER * took[-1])
    attempts = {each.attempt for run in ended.values() for each in house.admin.rounds(run.id)}
    if play.repeats and attempts == {1}:
        same = model_of(house, ended["calm"]) == model_of(house, ended["rough"])
        assert same, f"{name}: another model\n" + "\n".join(weather.told)
    rough = f"{took[1]:.0f} s with {len(weather.told)} faults, attempts at a round {sorted(attempts)}"
    return f"{name}: calm {took[0]:.0f} s, rough {rough}, no finding"


@pytest.mark.parametrize("preset", QUICK)
def test_a_task_in_bad_weather_ends_as_in_calm(house: Deployment, tmp_path: Path, preset: str) -> None:
    play = dataclasses.replace(PLAYS[preset], rounds=QUICK_ROUNDS, thought_seconds=0.1)
    print(calm_then_rough(house, play, QUICK[preset], QUICK_FAULTS, tmp_path))


def test_a_run_that_fails_leaves_no_device_behind(house: Deployment, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(AssertionError, match="on purpose"), Company(house, PLAYS["fedavg"], tmp_path) as company:
        company.start(company.publish())
        raise AssertionError("on purpose")
    assert company.has_ended()
    assert set(threading.enumerate()) <= before


@pytest.mark.slow
@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("preset", PLAYS)
def test_every_preset_outlives_bad_weather(house: Deployment, tmp_path: Path, preset: str, run: int) -> None:
    print(calm_then_rough(house, PLAYS[preset], SEED + run, MOST_FAULTS, tmp_path))
