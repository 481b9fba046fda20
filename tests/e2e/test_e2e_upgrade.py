"""A platform of an older version, killed in the middle of its tasks, goes on with the code of today and ends them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie.agent.home import DeviceHome
from coterie.agent.registration import register_device
from coterie.records import WorkItem
from coterie.strategies import Strategy, strategy_for
from services.kit.runtime.settings import ServiceSettings
from tests.dumps.device_groups import DEVICE_GROUPS, HELD_ROUND, ROUNDS, agent_of
from tests.dumps.stored import Dump, versions
from tests.e2e.real_platform import RealPlatform, real_platform


class Devices:
    """The devices of a dump, each from its own folder, in its own thread."""

    def __init__(self, platform: RealPlatform) -> None:
        self.platform, self.faults, self.threads = platform, list[BaseException](), list[threading.Thread]()
        self.homes = {name: self._home(name) for group in DEVICE_GROUPS for name in group.devices}
        self.outcomes: dict[tuple[str, int], str] = {}
        self.made: set[tuple[str, int]] = set()

    def _home(self, name: str) -> DeviceHome:
        home = DeviceHome(self.platform.folder / "devices" / name)
        register_device(home, self.platform.processes.url)  # the platform has another address now
        return home

    def start(self, tasks: dict[str, str]) -> None:
        for group in DEVICE_GROUPS:
            for name in group.devices:
                self.threads.append(threading.Thread(target=self._work, args=(name, tasks[group.task]), daemon=True))
                self.threads[-1].start()

    def _work(self, name: str, task: str) -> None:
        def choose(work: WorkItem) -> Strategy:
            self.made.add((name, work.round))
            return strategy_for(work)

        try:
            agent = agent_of(self.homes[name].folder, name, self.platform.cache, choose=choose)
            agent.join(task)
            for result in agent.run().rounds:
                self.outcomes[name, result.round] = result.outcome
        except BaseException as error:
            self.faults.append(error)

    def wait(self) -> None:
        for thread in self.threads:
            thread.join(90)
        assert not self.faults, self.faults
        assert not any(thread.is_alive() for thread in self.threads), self.platform.logs()


@pytest.fixture
def loaded(version: str, settings: ServiceSettings, tmp_path: Path) -> Iterator[tuple[Dump, RealPlatform]]:
    """A dump, and the platform of today on its databases, as if it had been killed a moment ago."""
    url = settings.database_url
    dump = Dump(version, "postgresql" if url else "sqlite")
    place = ServiceSettings(data_dir=tmp_path / "platform", database_url=url)
    dump.unpack_files(tmp_path)

    async def load() -> None:
        await dump.load(place)
        await dump.bring_to(place, time.time())

    asyncio.run(load())
    with real_platform(tmp_path, {"COTERIE_DATABASE_URL": url, "COTERIE_REPLICA": "aggregation-1"}) as platform:
        yield dump, platform


@pytest.mark.parametrize("version", versions())
def test_a_platform_killed_in_mid_task_goes_on_after_an_upgrade(loaded: tuple[Dump, RealPlatform]) -> None:
    dump, platform = loaded
    facts, admin = dump.facts(), platform.admin
    tasks: dict[str, str] = facts["tasks"]
    devices = Devices(platform)
    releases = {name: home.ledger().spent().releases for name, home in devices.homes.items()}
    check_memory(facts, platform)

    devices.start(tasks)
    for name, task in tasks.items():
        ended = admin.wait_for_end(task)
        assert ended.state == "finished", f"{name}: {ended.reason}\n{platform.logs()}"
    devices.wait()

    for group in DEVICE_GROUPS:
        rounds = list(admin.rounds(tasks[group.task]))
        history = [(event.round, event.kind, event.message) for event in admin.events(tasks[group.task])]
        assert [(item.state, item.attempt) for item in rounds] == [("done", 1)] * ROUNDS, "\n".join(
            map(str, [group.task, *history])
        )
        parts = [admin.round(tasks[group.task], number).participations for number in (HELD_ROUND, ROUNDS)]
        assert {part.state for held in parts for part in held} == {"delivered"}
        late, idle = facts["late"][group.task], facts["idle"][group.task]
        assert (devices.outcomes[late, HELD_ROUND], devices.outcomes[idle, HELD_ROUND]) == ("accepted", "accepted")
        # What was made before the upgrade was sent as it was, not made again, and nothing was charged twice.
        assert {(late, HELD_ROUND), (idle, HELD_ROUND)} & devices.made == {(idle, HELD_ROUND)}
        assert devices.homes[late].ledger().spent().releases - releases[late] == (0 if group.task == "plain" else 1)
    assert admin.verify_book().sound is True
    assert admin.verify_audit().sound is True
    platform.wait_until(lambda: all(escrow == 0 for escrow in escrows(platform, tasks)))


def check_memory(facts: dict[str, Any], platform: RealPlatform) -> None:
    """What the older platform said before any device came back."""
    admin = platform.admin
    for name, task in facts["tasks"].items():
        assert admin.task(task).state == "running"
        held = [
            {"number": item.number, "state": item.state, "model_digests": list(item.model_digests)}
            for item in admin.rounds(task)
        ]
        assert held == facts["rounds"][name]
        parts = admin.round(task, HELD_ROUND).participations
        assert {part.device_id: part.state for part in parts} == facts["participations"][name]
    accounts = {account.id: account.balance_microcredits for account in admin.accounts()}
    assert accounts == facts["accounts"]
    pair = facts["trust"]
    now = admin.explain_trust(pair["device_a"], pair["device_b"])
    # Twelve meetings an admin vouched for and a round were worth 1.0; not knowing now weighs five beside them.
    assert pair["trust"] == pytest.approx(1.0, abs=1e-3)
    assert now.trust == pytest.approx(13 / 18, abs=1e-3)
    assert now.positive_count == pair["positive_count"]
    for name, epsilon in facts["privacy"].items():
        assert admin.privacy(facts["devices"][name]).epsilon == pytest.approx(epsilon)


def escrows(platform: RealPlatform, tasks: dict[str, str]) -> list[int]:
    return [
        account.balance_microcredits
        for account in platform.admin.accounts("escrow:")
        if account.id.removeprefix("escrow:") in tasks.values()
    ]
