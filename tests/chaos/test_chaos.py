"""Bad weather over a deployment of two gateways and two aggregation servers: the task ends as if nothing had been.

The seed of a run is drawn, printed with any finding, and taken from `CHAOS_SEED` when that is set.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.checks import check, model_of
from tests.chaos.deployment import Deployment, deployment
from tests.chaos.plays import PLAYS, Company
from tests.chaos.weather import Weather

SEED = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
QUICK_SEED, QUICK_FAULTS = 1, 4
MOST_FAULTS = int(os.environ.get("CHAOS_FAULTS") or 20)
RUNS = int(os.environ.get("CHAOS_RUNS") or 1)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment(tmp_path_factory.mktemp("chaos"), SEED) as found:
        yield found


def calm_then_rough(house: Deployment, preset: str, seed: int, faults: int, folder: Path) -> list[str]:
    """Plays a task in calm weather and again in rough, and holds both against each other; the faults there were."""
    play, ended = PLAYS[preset], {}
    weather = Weather(house, seed)
    for run in ("calm", "rough"):
        company = Company(house, play, folder / run)
        task_id = company.publish()
        company.start(task_id)
        if run == "rough":
            weather.blow(company.has_ended, faults)
        try:
            ended[run] = company.end(task_id)
            check(house, company, ended[run])
        except AssertionError as error:
            story = "\n".join(weather.told)
            raise AssertionError(f"CHAOS_SEED={seed}, preset {preset}, {run}: {error}\n{story}") from error
    attempts = {each.attempt for run in ended.values() for each in house.admin.rounds(run.id)}
    if play.repeats and attempts == {1}:
        same = model_of(house, ended["calm"]) == model_of(house, ended["rough"])
        assert same, f"CHAOS_SEED={seed}, preset {preset}: another model\n" + "\n".join(weather.told)
    return weather.told


@pytest.mark.slow
def test_a_task_in_bad_weather_ends_as_in_calm(house: Deployment, tmp_path: Path) -> None:
    assert calm_then_rough(house, "fedavg", QUICK_SEED, QUICK_FAULTS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("preset", PLAYS)
def test_every_preset_outlives_bad_weather(house: Deployment, tmp_path: Path, preset: str, run: int) -> None:
    told = calm_then_rough(house, preset, SEED + run, MOST_FAULTS, tmp_path)
    print(f"CHAOS_SEED={SEED + run} {preset}: {len(told)} faults, no finding")
