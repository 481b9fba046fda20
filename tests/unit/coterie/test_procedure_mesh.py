"""A device's round in a mesh: what leaves it, what it takes in, what it keeps through crashes, what it charges."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from coterie import mesh
from coterie.errors import Declined, RoundOver
from coterie.home import Memory, Outbox
from coterie.keys import DeviceKeys
from coterie.letters import Header, Subject, read_header, seal
from coterie.mail import Mail
from coterie.mesh import MeshState
from coterie.privacy.ledger import Limit, PrivacyLedger
from coterie.procedures import procedure_for
from coterie.procedures.context import RoundContext
from coterie.procedures.mesh import Mesh
from coterie.procedures.mesh_state import DeviceState, Measured, Outgoing, Stream
from coterie.training import Trainer, single_threaded
from coterie.work import Peer, WorkItem

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
    ) -> dict[str, Any]:
        if self.office.refuse is not None:
            raise self.office.refuse
        self.office.post(round, self.device_id, recipient, letter, kind)
        return {}

    def letters(self, task_id: str, round: int, *, known: Iterable[str] = (), wait_seconds: float = 0.0) -> Any:
        if self.office.deadly:
            raise Killed
        box = self.office.letters_by_round.get((round, self.device_id), {})
        items = [
            {"id": key, "kind": kind, "sender": sender, "digest": ""}
            for key, (sender, kind, _) in box.items()
            if key not in set(known)
        ]
        return {"items": items, "gone": self.office.gone, "round_state": self.office.state}

    def download_letter(self, letter_id: str, digest: str) -> Path:
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

    @property
    def memory(self) -> Memory:
        return Memory(self.folder / "memory")

    @property
    def ledger(self) -> PrivacyLedger:
        return PrivacyLedger(self.folder / "ledger.db", self.limit)

    def state(self) -> DeviceState:
        found = DeviceState.load(self.memory)
        assert found is not None
        return found

    def round(self, work: WorkItem) -> Any:
        """Does the round as a fresh process would."""
        trainer = Trainer(module(), self.data)
        mail = Mail(
            self.office.as_device(self.name),  # type: ignore[arg-type]  # plays the part of the platform
            work,
            self.name,
            self.keys,
            Outbox(self.folder / "outbox"),
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
            lambda _: start,
            5,
        )
        return Mesh().prepare(context)

    def _tick(self) -> float:
        self.now += 20.0
        return self.now


def work_for(me: Device, others: list[Device], round: int = 1, **changes: Any) -> WorkItem:
    peers = tuple(
        Peer(
            device_id=other.name,
            role="peer",
            signing_key=b"",
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


@pytest.fixture
def office(tmp_path: Path) -> PostOffice:
    return PostOffice(tmp_path)


@pytest.fixture
def ada(office: PostOffice, tmp_path: Path) -> Device:
    return Device(office, tmp_path, "ada")


@pytest.fixture
def bobby(office: PostOffice, tmp_path: Path) -> Device:
    return Device(office, tmp_path, "bobby")


def write(office: PostOffice, sender: Device, to: Device, values: Any, round: int = 1, version: int = 1) -> bytes:
    subject = Subject("tsk_1", round, version, "parameters")
    tensors = {"parameters": np.asarray(values, dtype=np.float32)}
    sealed = seal(Header(subject, sender.name, to.name), tensors, sender.keys, to.keys.public().sealing)
    office.post(1, sender.name, to.name, sealed)
    return sealed


def expected_step(me: Device, own: Any, received: dict[int, Any], weight: float, round: int, state: Any) -> Any:
    """(18) worked out apart from the procedure, for a raw device."""
    trainer = Trainer(module(), me.data)
    trainer.set_parameters(state.learner.parameters)
    batch, _ = state.stream.take(len(me.data[0]), 8)
    gradient = trainer.clipped_gradient_sum(batch, 5.0, "l1") / 8
    mixed = own * (1 - weight * len(received)) + sum(weight * value for value in received.values())
    return mixed - mesh.step_size(round - 1, initial=0.5) * gradient


# --- a round ----------------------------------------------------------------------------------------------------------


def test_the_procedure_is_found_by_its_topology_whatever_the_privacy(ada: Device, bobby: Device) -> None:
    for privacy in ("partial", "none"):
        assert isinstance(procedure_for(work_for(ada, [bobby], privacy=privacy)), Mesh)


def test_a_device_mixes_what_its_neighbour_sent_and_takes_its_own_step(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    theirs = np.arange(SIZE, dtype=np.float32)
    write(office, bobby, ada, theirs)
    delivery = ada.round(work_for(ada, [bobby]))
    own = Trainer(module(), ada.data).parameters()
    start = DeviceState(MeshState.start(own), Stream(5))
    expected = expected_step(ada, own.astype(np.float32), {0: theirs}, 0.5, 1, start)
    assert np.allclose(ada.state().learner.parameters, expected, atol=1e-6)
    assert delivery.tensors is None
    assert delivery.form == "report"
    assert delivery.privacy == ()
    assert delivery.metrics["heard"] == 1.0
    assert delivery.metrics["simulated_transfer_seconds"] == 2.0
    assert delivery.metrics["consensus_distance"] == pytest.approx(
        float(np.sqrt(np.mean((theirs - own) ** 2))), rel=1e-5
    )


def test_a_missing_neighbours_weight_returns_to_the_device_itself(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    delivery = ada.round(work_for(ada, [bobby]))
    own = Trainer(module(), ada.data).parameters()
    start = DeviceState(MeshState.start(own), Stream(5))
    assert np.allclose(ada.state().learner.parameters, expected_step(ada, own, {}, 0.5, 1, start), atol=1e-6)
    assert delivery.metrics["heard"] == 0.0
    assert "consensus_distance" not in delivery.metrics


def test_nobody_waits_for_a_neighbour_that_is_gone(office: PostOffice, ada: Device, bobby: Device) -> None:
    office.gone = ["bobby"]
    ada.round(work_for(ada, [bobby], deadline_at=1e18))
    assert ada.now < 1e4


def test_neighbours_that_exchange_come_together_and_learn(
    office: PostOffice, tmp_path: Path, ada: Device, bobby: Device
) -> None:
    first = []
    for number in range(1, 8):
        # bobby is killed behind its letters, and started again when ada is done
        _send_only(bobby, work_for(bobby, [ada], number))
        first.append(ada.round(work_for(ada, [bobby], number)).metrics["loss"])
        bobby.round(work_for(bobby, [ada], number))
    assert first[-1] < first[0]
    apart = np.abs(ada.state().learner.parameters - bobby.state().learner.parameters).max()
    assert apart < 0.5


def _send_only(device: Device, work: WorkItem) -> None:
    """A device that is killed right after its letters went out."""
    device.office.deadly = True
    with pytest.raises(Killed):
        device.round(work)
    device.office.deadly = False


# --- letters that are not accepted ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "round", "version"),
    [
        (np.ones(SIZE), 2, 1),
        (np.ones(SIZE), 1, 9),
        (np.ones(SIZE - 1), 1, 1),
        (np.full(SIZE, np.nan), 1, 1),
    ],
    ids=["stale round", "other plan", "wrong size", "not finite"],
)
def test_a_letter_of_another_round_or_plan_or_without_sound_parameters_counts_as_missing(
    office: PostOffice, ada: Device, bobby: Device, values: Any, round: int, version: int
) -> None:
    write(office, bobby, ada, values, round, version)
    assert ada.round(work_for(ada, [bobby])).metrics["heard"] == 0.0
    own = Trainer(module(), ada.data).parameters()
    start = DeviceState(MeshState.start(own), Stream(5))
    assert np.allclose(ada.state().learner.parameters, expected_step(ada, own, {}, 0.5, 1, start), atol=1e-6)


def test_a_letter_replayed_into_a_later_round_is_dropped(office: PostOffice, ada: Device, bobby: Device) -> None:
    sealed = write(office, bobby, ada, np.ones(SIZE))
    assert ada.round(work_for(ada, [bobby])).metrics["heard"] == 1.0
    office.post(2, "bobby", "ada", sealed)
    assert ada.round(work_for(ada, [bobby], 2)).metrics["heard"] == 0.0


def test_only_the_first_of_two_letters_counts(office: PostOffice, ada: Device, bobby: Device) -> None:
    write(office, bobby, ada, np.ones(SIZE))
    write(office, bobby, ada, np.full(SIZE, 100.0))
    ada.round(work_for(ada, [bobby]))
    assert np.abs(ada.state().learner.parameters).max() < 10


def test_letters_carry_task_round_and_plan_and_hide_the_parameters(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    ada.round(work_for(ada, [bobby], plan_version=4))
    ((_, _, sealed),) = office.letters_by_round[1, "bobby"].values()
    assert read_header(sealed).subject == Subject("tsk_1", 1, 4, "parameters")
    plain = Trainer(module(), ada.data).parameters().astype(np.float32).tobytes()
    assert plain[:16] not in sealed


# --- noise and the ledger ---------------------------------------------------------------------------------------------


def test_a_noised_device_has_nothing_to_hide_at_first_and_then_hides_its_last_step(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    first = ada.round(work_for(ada, [bobby], 1, noised=True, trusted=False))
    assert first.privacy == ()
    assert ada.ledger.spent().releases == 0
    before = ada.state().learner.parameters
    second = ada.round(work_for(ada, [bobby], 2, noised=True, trusted=False))
    sent = Outgoing.load(ada.memory)
    assert sent is not None
    assert sent.scale == pytest.approx(2 * 0.5 * 5.0 / (8 * 1.0))
    assert np.abs(sent.parameters - before).max() > 0
    assert [(use.mechanism, use.parameter, use.unit) for use in second.privacy] == [("laplace", 1.0, "example")]
    assert ada.ledger.spent().releases == 1
    assert second.metrics["noise_scale"] == sent.scale


def test_a_crash_after_sending_sends_the_same_noise_again_and_charges_once(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    ada.round(work_for(ada, [bobby], 1, noised=True))
    work = work_for(ada, [bobby], 2, noised=True)
    _send_only(ada, work)
    ((_, _, before),) = office.letters_by_round[2, "bobby"].values()
    office.letters_by_round.clear()
    ada.round(work)
    ((_, _, after),) = office.letters_by_round[2, "bobby"].values()
    assert before == after
    sent = Outgoing.load(ada.memory)
    replanned = replace(work, plan_version=2, attempt=2)
    ada.round(replanned)
    again = Outgoing.load(ada.memory)
    assert sent is not None
    assert again is not None
    assert np.array_equal(sent.parameters, again.parameters)
    assert ada.ledger.spent().releases == 1


def test_a_crash_after_the_step_repeats_the_report_and_not_the_step(ada: Device, bobby: Device) -> None:
    first = ada.round(work_for(ada, [bobby]))
    state = ada.state()
    second = ada.round(work_for(ada, [bobby]))
    assert first.report() == second.report()
    assert ada.state().steps == state.steps == 1
    assert np.array_equal(ada.state().learner.parameters, state.learner.parameters)


def test_raw_letters_need_the_owners_leave(office: PostOffice, tmp_path: Path, bobby: Device) -> None:
    careful = Device(office, tmp_path, "careful", limit=Limit(8.0, 1e-5))
    careful.round(work_for(careful, [bobby], 1))  # nothing of its own is in the common start
    with pytest.raises(Declined, match="allow_raw=True"):
        careful.round(work_for(careful, [bobby], 2))
    assert (2, "bobby") not in office.letters_by_round


def test_the_ledgers_limit_ends_a_noised_devices_part(office: PostOffice, tmp_path: Path, bobby: Device) -> None:
    small = Device(office, tmp_path, "small", limit=Limit(1.5, 1e-5))
    for number in (1, 2):
        small.round(work_for(small, [bobby], number, noised=True))
    with pytest.raises(Declined, match="beyond its limit"):
        small.round(work_for(small, [bobby], 3, noised=True))


def test_the_papers_scale_proves_nothing_and_is_charged_as_raw(ada: Device, bobby: Device) -> None:
    for number in (1, 2):
        work = work_for(ada, [bobby], number, noised=True, terms={"sensitivity": "paper"})
        delivery = ada.round(work)
    assert delivery.metrics["noise_scale"] > 0
    assert delivery.privacy == ()
    assert (ada.ledger.spent().releases, ada.ledger.spent().raw_releases) == (0, 1)


def test_a_plan_that_sends_raw_parameters_to_a_stranger_is_declined(ada: Device, bobby: Device) -> None:
    with pytest.raises(Declined, match="raw parameters to bobby"):
        ada.round(work_for(ada, [bobby], noised=False, trusted=False))


def test_raw_parameters_kept_from_before_are_not_sent_once_noise_is_due(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    ada.round(work_for(ada, [bobby], 1))
    _send_only(ada, work_for(ada, [bobby], 2))
    kept = Outgoing.load(ada.memory)
    assert kept is not None
    assert kept.scale == 0.0
    ada.round(work_for(ada, [bobby], 2, noised=True, trusted=False, plan_version=2, attempt=2))
    drawn = Outgoing.load(ada.memory)
    assert drawn is not None
    assert drawn.scale > 0.0


def test_what_a_noised_device_sends_next_depends_on_earlier_samples_only_through_what_it_sent(
    office: PostOffice, tmp_path: Path, bobby: Device
) -> None:
    """The claim behind ε per round: given y, a sample of an earlier batch changes nothing any more.

    With the gradient at x, as spec §6 step 3 has it, the two devices' next parameters would differ by more than the
    noise covers, because every sample's gradient of the new batch is taken at another point.
    """
    stepped, common = list[tuple[DeviceState, DeviceState]](), None
    for name, change in (("anna", 0.0), ("emma", 5.0)):
        inputs, targets = samples(1)
        first_batch, _ = Stream(5).take(len(inputs), 8)
        inputs[first_batch[0]] += change
        device = Device(office, tmp_path, name, data=(inputs, targets))
        device.round(work_for(device, [bobby], 1, noised=True))
        state = device.state()
        if common is None:
            common = Outgoing((state.learner.parameters + 0.1).astype(np.float32), 1, 0.5)
        common.save(device.memory)
        device.round(work_for(device, [bobby], 2, noised=True))
        stepped.append((state, device.state()))
    (before, after), (other_before, other_after) = stepped
    assert not np.allclose(before.learner.parameters, other_before.learner.parameters)
    assert np.array_equal(after.learner.parameters, other_after.learner.parameters)


# --- what is kept -----------------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(1, 80), st.integers(0, 2**62))
def test_no_sample_is_twice_in_a_batch_and_none_comes_again_within_a_pass(samples: int, size: int, seed: int) -> None:
    stream, seen = Stream(seed), dict[int, list[int]]()
    for _ in range(6):
        batch, stream = stream.take(samples, size)
        assert len(batch) == min(size, samples)
        seen.setdefault(stream.passes, []).extend(batch.tolist())
    for used in seen.values():
        assert len(used) == len(set(used))
        assert set(used) <= set(range(samples))


def test_state_comes_back_from_disk_as_it_was(tmp_path: Path) -> None:
    learner = MeshState(np.arange(3.0), np.ones(3), 0.25, 7)
    state = DeviceState(learner, Stream(2**62, 3, 11), 4, 9, 1.5, {"loss": 0.5, "heard": 1.0})
    state.save(Memory(tmp_path))
    found = DeviceState.load(Memory(tmp_path))
    assert found is not None
    assert np.array_equal(found.learner.parameters, learner.parameters)
    assert (found.stream, found.steps, found.round, found.online_loss) == (state.stream, 4, 9, 1.5)
    assert (found.learner.step_size, found.learner.batch_size) == (0.25, 7)
    assert found.metrics == state.metrics


# --- measuring --------------------------------------------------------------------------------------------------------


def test_links_and_speed_are_reported_when_they_are_news(office: PostOffice, ada: Device, bobby: Device) -> None:
    parameters = {"topology": {"times": "measured"}, "privacy": {}}
    write(office, bobby, ada, np.ones(SIZE))
    ada.round(work_for(ada, [bobby], parameters=parameters))
    assert [(a, b) for a, b, _ in office.links] == [("ada", "bobby")]
    assert office.links[0][2] > 0
    assert office.abilities["ada"]["capabilities"]["seconds_per_sample"] > 0
    told = Measured.load(ada.memory)
    assert told.links == {"bobby": office.links[0][2]}
    assert not told.is_news(1.0, 1.2)
    assert told.is_news(1.0, 1.3)
    assert told.is_news(1.0, 0.7)


def test_nothing_is_reported_where_times_are_declared(office: PostOffice, ada: Device, bobby: Device) -> None:
    write(office, bobby, ada, np.ones(SIZE))
    ada.round(work_for(ada, [bobby]))
    assert office.links == []
    assert office.abilities == {}


def test_a_round_that_ends_while_letters_are_sent_still_steps(office: PostOffice, ada: Device, bobby: Device) -> None:
    office.refuse = RoundOver("over")
    assert ada.round(work_for(ada, [bobby])).metrics["heard"] == 0.0
    assert ada.state().steps == 1


def test_a_senseless_learning_rate_is_declined(ada: Device, bobby: Device) -> None:
    with pytest.raises(Declined, match="learning_rate"):
        ada.round(work_for(ada, [bobby], training={"learning_rate": -1}))
