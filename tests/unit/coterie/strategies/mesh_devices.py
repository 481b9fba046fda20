"""A post office and devices in one process, for tests of a device's round in a mesh."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from coterie.agent.home import Outbox, TaskState
from coterie.agent.mail import Mail
from coterie.learning import mixing
from coterie.learning.models import Flat
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training import single_threaded
from coterie.privacy.ledger import Limit, PrivacyLedger
from coterie.protocol.keys import DeviceKeys
from coterie.protocol.letters import Header, Subject, seal
from coterie.records import Letter, Letters, Peer, Role, WorkItem
from coterie.secure_sums.circle import Circle
from coterie.strategies.context import RoundContext
from coterie.strategies.device_state import DeviceState
from coterie.strategies.mesh import Mesh
from tests.answers import made

single_threaded()
SIZE = 4 * 3 + 3
OPEN = Limit(50.0, 1e-5, allow_raw=True)


class Killed(BaseException):
    """kill -9, as far as a test in one process can tell."""


@dataclass
class PostOffice:
    """The platform as far as letters and reports of times go; letters are kept as ciphertext."""

    folder: Path
    letters_by_round: dict[tuple[int, str], dict[str, tuple[str, str, bytes]]] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    state: str = "open"
    links: list[tuple[str, str, float]] = field(default_factory=list)
    abilities: dict[str, Any] = field(default_factory=dict)
    refuse: Exception | None = None
    deadly: bool = False

    def post(self, round: int, sender: str, recipient: str, sealed: bytes, kind: str = "parameters") -> None:
        box = self.letters_by_round.setdefault((round, recipient), {})
        box.setdefault(f"let_{sender}_{len(box)}", (sender, kind, sealed))

    def as_device(self, device_id: str) -> View:
        return View(self, device_id)


@dataclass
class View:
    """What one device sees of the post office."""

    office: PostOffice
    device_id: str

    def send_letter(
        self, task_id: str, round: int, recipient: str, letter: bytes, *, kind: str, plan_version: int
    ) -> None:
        if self.office.refuse is not None:
            raise self.office.refuse
        self.office.post(round, self.device_id, recipient, letter, kind)

    def letters(
        self, task_id: str, round: int, *, known: Iterable[str] = (), wait_seconds: float = 0.0, plan_version: int = 0
    ) -> Letters:
        if self.office.deadly:
            raise Killed
        box = self.office.letters_by_round.get((round, self.device_id), {})
        items = [
            made(Letter, id=key, kind=kind, sender=sender, plan_version=1)
            for key, (sender, kind, _) in box.items()
            if key not in set(known)
        ]
        return made(Letters, items=items, gone=self.office.gone, round_state=self.office.state)

    def download_letter(self, letter_id: str, digest: str, *, most_bytes: int | None = None) -> Path:
        for (_, recipient), box in self.office.letters_by_round.items():
            if recipient == self.device_id and letter_id in box:
                path = self.office.folder / hashlib.sha256(box[letter_id][2]).hexdigest()
                path.write_bytes(box[letter_id][2])
                return path
        raise AssertionError(letter_id)

    def report_links(self, task_id: str, links: Iterable[tuple[str, str, float]]) -> None:
        self.office.links.extend(links)

    def update_device(self, device_id: str, **changes: Any) -> None:
        self.office.abilities[device_id] = changes


def module() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return torch.nn.Linear(4, 3)


def samples(seed: int, count: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=draw)
    return inputs, inputs[:, :3].argmax(dim=1)


class Device:
    """A device with its folder, restartable at will."""

    def __init__(self, office: PostOffice, folder: Path, name: str, *, limit: Limit = OPEN, data: Any = None) -> None:
        self.office, self.folder, self.name, self.limit = office, folder / name, name, limit
        self.folder.mkdir(exist_ok=True)
        self.keys = DeviceKeys.load_or_create(self.folder / "keys.json")
        self.data = samples(len(name)) if data is None else data
        self.now = 1000.0
        self.circle = Circle()

    @property
    def memory(self) -> TaskState:
        return TaskState(self.folder / "memory")

    @property
    def ledger(self) -> PrivacyLedger:
        return PrivacyLedger(self.folder / "ledger.db", self.limit)

    def state(self) -> DeviceState:
        result = DeviceState.load(self.memory)
        assert result is not None
        return result

    def round(self, work: WorkItem) -> Any:
        """Does the round as a fresh process would."""
        trainer = TorchLearner(module(), self.data)
        mail = Mail(
            self.office.as_device(self.name),  # type: ignore[arg-type]  # plays the part of the platform
            work,
            self.name,
            self.keys,
            Outbox(self.folder / "outbox"),
            self.circle,
            now=self._tick,
        )
        start = self.office.folder / "start.safetensors"
        save_file({k: v.numpy().copy() for k, v in module().state_dict().items()}, start)
        context = RoundContext(
            work,
            self.name,
            self.keys,
            trainer,
            len(self.data[0]),
            mail,
            self.ledger,
            {},
            self.memory,
            Outbox(self.folder / "outbox"),
            lambda _: start,
            5,
        )
        return Mesh().prepare(context)

    def _tick(self) -> float:
        self.now += 20.0
        return self.now


def work_for(me: Device, others: list[Device], round: int = 1, **changes: Any) -> WorkItem:
    """Work among devices whose owners know each other, where the plan calls their links trusted."""
    if changes.get("trusted", True):
        for other in others:
            me.circle = me.circle.with_member(other.name, other.keys.public().signing, f"own_{other.name}")
    peers = tuple(
        Peer(
            device_id=other.name,
            role=Role.PEER,
            signing_key=other.keys.public().signing,
            sealing_key=other.keys.public().sealing,
            weight=0.5 / len(others),
            trusted=changes.get("trusted", True),
            link_seconds=2.0,
        )
        for other in others
    )
    privacy = {"epsilon": 1.0, "sensitivity": "clipped", "clip": 5.0} | changes.pop("terms", {})
    changes.pop("trusted", None)
    values: dict[str, Any] = {
        "task_id": "tsk_1",
        "round": round,
        "attempt": 1,
        "role": "peer",
        "model_digests": ("m",),
        "model_lines": (0,),
        "previous_digests": (),
        "deadline_at": 2000.0,
        "plan_version": 1,
        "noise_multiplier": 0.0,
        "noised": False,
        "batch_size": 8,
        "self_weight": 0.5,
        "peers": peers,
        "price_microcredits": 0,
        "external_risk": 0.0,
        "base_microcredits": 0,
        "slope_microcredits": 0,
        "training": {"learning_rate": 0.5},
        "parameters": {"topology": {"times": "declared"}, "privacy": privacy},
        "privacy_unit": "example",
        "topology": "mesh",
        "privacy": "partial",
        "incentive": "none",
        "max_update_bytes": 1 << 20,
        "rounds": 9,
    }
    return WorkItem(**(values | changes))


def write(office: PostOffice, sender: Device, to: Device, values: Any, round: int = 1, version: int = 1) -> bytes:
    subject = Subject("tsk_1", round, version, "parameters")
    tensors = {"parameters": np.asarray(values, dtype=np.float32)}
    sealed = seal(Header(subject, sender.name, to.name), tensors, sender.keys, to.keys.public().sealing)
    office.post(1, sender.name, to.name, sealed)
    return sealed


def expected_step(me: Device, own: Any, received: dict[int, Any], weight: float, round: int, state: Any) -> Any:
    """(18) worked out apart from the strategy, for a raw device."""
    trainer = TorchLearner(module(), me.data)
    flat = Flat.of(trainer.parameters(), trainer.trained())
    trainer.load(flat.put(state.learner.parameters, trainer.parameters()))
    batch, _ = state.stream.take(len(me.data[0]), 8)
    gradient = flat.vector(trainer.gradient_sum(batch, 5.0, "l1")) / 8
    mixed = own * (1 - weight * len(received)) + sum(weight * value for value in received.values())
    return mixed - mixing.step_size(round - 1, initial=0.5) * gradient


def start_of(device: Device) -> Any:
    """The model a device starts from, as the vector that travels."""
    learner = TorchLearner(module(), device.data)
    return Flat.of(learner.parameters(), learner.trained()).vector(learner.parameters())


def send_only(device: Device, work: WorkItem) -> None:
    """A device that is killed right after its letters went out."""
    device.office.deadly = True
    with pytest.raises(Killed):
        device.round(work)
    device.office.deadly = False
