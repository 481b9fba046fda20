"""What happens on a platform before it is dumped: a social life, and three tasks led to the middle of a round."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from coterie.agent.agent import Agent
from coterie.agent.home import DeviceHome
from coterie.agent.registration import register_device
from coterie.agent.report import Delivery
from coterie.client import Platform
from coterie.protocol.transport import Interrupted
from coterie.records import WorkItem
from coterie.strategies import strategy_for
from coterie.strategies.context import RoundContext
from tests.dumps.device_groups import DEVICE_GROUPS, HELD_ROUND, MILLION, ROUNDS, DeviceGroup, agent_of
from tests.e2e.real_platform import PATIENT, RealPlatform, model


class Hold:
    """Holds two devices of a task back in the held round: one before it begins, one with its update made and stored.

    Neither is a head, whom others would have to wait for; in clusters the first is a member, so that its head waits.
    """

    def __init__(self, gone: threading.Event) -> None:
        self._gone, self._lock = gone, threading.Lock()
        self.roles: dict[str, str] = {}
        self.idle = self.late = ""

    def before_work(self, name: str, work: WorkItem) -> None:
        """Called when a device gets work; does not return for one that is held back."""
        with self._lock:
            if work.round != HELD_ROUND:
                return
            self.roles[name] = work.role
            if self.idle or work.role == "head" or (work.topology == "clusters" and work.role != "member"):
                return
            self.idle = name
        self._wait()

    def before_sending(self, name: str, round: int) -> None:
        """Called when a device's update is stored and about to be sent."""
        with self._lock:
            if round != HELD_ROUND or self.late or self.roles[name] == "head":
                return
            self.late = name
        self._wait()

    def _wait(self) -> None:
        self._gone.wait()
        raise Interrupted

    def missing(self) -> int:
        """How many updates of the held round are to be missing."""
        return 2 + ("head" in self.roles.values())


class Held:
    """A strategy that asks before it begins."""

    def __init__(self, name: str, hold: Hold) -> None:
        self._name, self._hold = name, hold

    def prepare(self, context: RoundContext) -> Delivery:
        """Does the work as it should be done."""
        self._hold.before_work(self._name, context.work)
        return strategy_for(context.work).prepare(context)


class Play:
    """A platform with all its tasks, led to the middle of the held round."""

    def __init__(self, platform: RealPlatform) -> None:
        self.platform, self.admin = platform, platform.admin
        self.gone = threading.Event()
        self.holds = {group.task: Hold(self.gone) for group in DEVICE_GROUPS}
        self.homes: dict[str, DeviceHome] = {}
        self.tasks: dict[str, str] = {}
        self.agents: list[Agent] = []
        self.threads: list[threading.Thread] = []
        self.faults: list[BaseException] = []

    def perform(self) -> None:
        """Returns when every task is in its held round, with one update made and not sent and one not begun."""
        self._furnish()
        for group in DEVICE_GROUPS:
            self._register(group)
        self._social_life()
        for group in DEVICE_GROUPS:
            self._begin(group)
        for group in DEVICE_GROUPS:
            self._wait_until_held(group)

    def end(self) -> None:
        """Ends the agents; call it when the platform is gone."""
        self.gone.set()
        for agent in self.agents:
            agent.stop()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not self.faults, self.faults

    def id(self, name: str) -> str:
        identity = self.homes[name].identity()
        assert identity is not None
        return identity.id

    # --- what is there besides tasks ---------------------------------------------------------------------------------

    def _furnish(self) -> None:
        """A base station and a trained policy, an import, a revoked key, a token nobody used."""
        cell = {"x_metres": 0, "y_metres": 0, "blocks": 2, "power_watts": 0.1, "bandwidth_hertz": 180_000}
        cell |= {"delay_limit_seconds": 0.5, "radius_metres": 250}
        self.admin.put_cell("roof-north", **cell)
        self.admin.train_policy(users=2, steps=1, seed=1)
        at = time.time() - 3600.0
        met = {"device_a": "lamp", "device_b": "phone", "positive": True, "duration_seconds": 60, "at": at}
        related = {"kind": "ownership", "a": "lamp", "b": "phone"}
        rows = [
            {"name": "town", "owner_name": "Town"},
            {"line": 1, "interaction": met},
            {"line": 2, "relation": related},
        ]
        body = "\n".join(json.dumps(row) for row in rows).encode()
        self.admin.import_rows(body)
        old = self.admin.create_key("publisher", "gone")
        self.admin.revoke_key(old.id)

    def _register(self, group: DeviceGroup) -> None:
        owner = self.admin.create_owner(f"owner of {group.task}", sharing="owners").id
        token = self.admin.issue_token(owner, uses=len(group.devices) + 1).token
        for number, name in enumerate((*group.devices, f"{group.task}-lost")):
            home = DeviceHome(self.platform.folder / "devices" / name)
            profile = {"kind": "phone", "brand": "Acme", "location": {"x_metres": 10.0 * number, "y_metres": 0.0}}
            register_device(home, self.platform.processes.url, token, name=name, profile=profile)
            home.ledger(group.limit)
            if group.private:
                home.save_private_settings(group.private)
            self.homes[name] = home
        self.admin.issue_token(owner)

    def _social_life(self) -> None:
        owners = [owner.id for owner in self.admin.owners()]
        self.admin.declare_friendship(owners[0], owners[1], 0.8)
        now = time.time()
        self.admin.record_interactions(
            {
                "id": f"{a}-{b}-{number}",
                "device_a": self.id(a),
                "device_b": self.id(b),
                "positive": True,
                "duration_seconds": 600.0,
                "at": now - 60.0 * (number + 1),
                "kind": "meeting",
            }
            for group in DEVICE_GROUPS
            for a, b in group.ties
            for number in range(12)
        )
        self.admin.derive_relations()
        for group in DEVICE_GROUPS:
            self.admin.revoke_device(self.id(f"{group.task}-lost"), "lost on the way")

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _begin(self, group: DeviceGroup) -> None:
        made = self.admin.create_key("publisher", f"publisher of {group.task}")
        self.admin.deposit(made.principal.subject, 2000 * MILLION, key="opening")
        common: dict[str, Any] = {"rounds": ROUNDS, "min_devices": len(group.devices), "seed": 7, "quorum": 1.0}
        # Long enough for a device that is waited for to be met by the platform of the future.
        common |= {"round_seconds": 900.0}
        with Platform(self.platform.processes.url, made.api_key, backoff=PATIENT) as publisher:
            digest = publisher.upload_model(model())
            specification = common | group.specification
            task = publisher.create_task(name=group.task, model_digests=[digest], **specification).id
            dropped = publisher.create_task(name=f"{group.task} never", model_digests=[digest], **specification)
            publisher.cancel_task(dropped.id, "changed my mind")
            self.tasks[group.task] = task
            for name in group.devices:
                self._run(group, name, task)
            self.platform.wait_until(lambda: bool(self.faults) or self._enrolled(task) == len(group.devices))
            assert not self.faults, self.faults
            a, b, *_ = (self.id(name) for name in group.devices)
            self.admin.report_links(task, [(a, b, 0.25)])
            publisher.start_task(task)

    def _enrolled(self, task: str) -> int:
        return self.admin.task(task).enrolled

    def _run(self, group: DeviceGroup, name: str, task: str) -> None:
        hold = self.holds[group.task]
        agent = agent_of(self.homes[name].folder, name, self.platform.cache, choose=lambda work: Held(name, hold))
        send = agent.platform.put_update

        def put_update(task_id: str, round: int, device_id: str, **options: Any) -> Any:
            hold.before_sending(name, round)
            return send(task_id, round, device_id, **options)

        agent.platform.put_update = put_update  # type: ignore[method-assign]
        self.agents.append(agent)

        def body() -> None:
            try:
                agent.join(task)
                agent.run()
            except BaseException as error:
                self.faults.append(error)

        self.threads.append(threading.Thread(target=body, daemon=True))
        self.threads[-1].start()

    def _wait_until_held(self, group: DeviceGroup, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not self._is_held(group):
            if time.monotonic() > deadline:
                task = self.tasks[group.task]
                told = [self.admin.task(task), self.admin.round(task, HELD_ROUND), *self.admin.events(task)]
                sys.exit(f"{group.task} is not held after {seconds:.0f} s\n" + "\n".join(map(str, told)))
            time.sleep(0.1)

    def _is_held(self, group: DeviceGroup) -> bool:
        assert not self.faults, self.faults
        task, hold = self.tasks[group.task], self.holds[group.task]
        if self.admin.task(task).round != HELD_ROUND or not (hold.idle and hold.late):
            return False
        parts = self.admin.round(task, HELD_ROUND).participations
        return len(hold.roles) == len(parts) and sum(part.state == "assigned" for part in parts) == hold.missing()

    # --- what is true ------------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """What a later platform must still know, as REST tells it."""
        a, b = (self.id(name) for name in DEVICE_GROUPS[1].ties[0])
        return {
            "tasks": self.tasks,
            "late": {group: hold.late for group, hold in self.holds.items()},
            "idle": {group: hold.idle for group, hold in self.holds.items()},
            "devices": {name: self.id(name) for name in self.homes},
            "rounds": {
                group: [
                    {"number": item.number, "state": item.state, "model_digests": list(item.model_digests)}
                    for item in self.admin.rounds(task)
                ]
                for group, task in self.tasks.items()
            },
            "participations": {
                group: {part.device_id: part.state for part in self.admin.round(task, HELD_ROUND).participations}
                for group, task in self.tasks.items()
            },
            "accounts": {account.id: account.balance_microcredits for account in self.admin.accounts()},
            "trust": self.admin.explain_trust(a, b, at=time.time()).to_dict(),
            "privacy": {name: self.admin.privacy(self.id(name)).epsilon for name in DEVICE_GROUPS[2].devices},
        }
