"""Clusters on the device: members seal, heads open, check and sum, and no device releases what its owner forbids."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from coterie.agent.home import DeviceHome
from coterie.agent.mail import Mail
from coterie.agent.report import Delivery
from coterie.errors import Declined
from coterie.privacy.ledger import Limit
from coterie.protocol.letters import Header, Subject, seal
from coterie.records import Letter, Letters, Peer, Role, WorkItem
from coterie.strategies import head_checks as checks
from coterie.strategies import strategy_for
from coterie.strategies.clusters import Clusters
from coterie.strategies.context import RoundContext
from coterie.strategies.head_checks import Tally
from tests.answers import made

SIZE = 400
OPEN_LIMIT = Limit(1e6, 1e-5, "device", allow_raw=True)
PARAMETERS = {
    "topology": {
        "loss_fit": [0.013, 0.0044, 0.0057, 8.18, 0.14],
        "quality_offset": 102.2444,
        "quality_slope": 35.4278,
        "non_iid": 1.0,
    },
    "privacy": {"noise_max": 0.6},
}


@dataclass
class Relay:
    """The platform's part: keeps sealed letters and hands them out."""

    letters_of: dict[str, list[Letter]] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    folder: Path = Path()
    gone: list[str] = field(default_factory=list)

    def as_device(self, device_id: str) -> RelayView:
        return RelayView(self, device_id)


@dataclass
class RelayView:
    """The relay as one device sees it."""

    relay: Relay
    device_id: str

    def send_letter(
        self, task: str, round: int, recipient: str, sealed: bytes, *, kind: str, plan_version: int
    ) -> None:
        number = f"let_{len(self.relay.bodies)}"
        self.relay.bodies[number] = sealed
        digest = hashlib.sha256(sealed).hexdigest()
        letter = made(
            Letter, id=number, kind=kind, sender=self.device_id, digest=digest, plan_version=plan_version, round=round
        )
        self.relay.letters_of.setdefault(recipient, []).append(letter)

    def letters(
        self, task: str, round: int, *, known: list[str], wait_seconds: float, plan_version: int = 0
    ) -> Letters:
        here = [letter for letter in self.relay.letters_of.get(self.device_id, []) if letter.round == round]
        fresh = [letter for letter in here if letter.id not in known]
        return made(Letters, items=fresh, gone=self.relay.gone, round_state="open" if fresh else "closing")

    def download_letter(self, letter_id: str, digest: str, *, most_bytes: int | None = None) -> Path:
        path = self.relay.folder / letter_id
        path.write_bytes(self.relay.bodies[letter_id])
        return path


class Learner:
    """A trainer whose training adds a change given beforehand; its figures are its owner's business."""

    samples = 10

    def __init__(self, change: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        self.change, self.state = change, np.zeros(SIZE, np.float32)

    def load(self, tensors: dict[str, Any]) -> None:
        self.state = tensors["w"].copy()

    def evaluate(self) -> dict[str, float]:
        return {"accuracy": 0.5}

    def train(self, recipe: Any, seed: int) -> None:
        self.state = self.state + self.change

    def parameters(self) -> dict[str, Any]:
        return {"w": self.state}


@dataclass
class Circle:
    """A head "h" and members, each with its own home."""

    folder: Path
    relay: Relay = field(default_factory=Relay)
    homes: dict[str, DeviceHome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.relay.folder = self.folder
        self.blobs: dict[str, Path] = {}

    def model(self, value: float | np.ndarray[Any, Any]) -> str:
        body = save({"w": np.broadcast_to(np.float32(value), (SIZE,)).astype(np.float32)})
        digest = hashlib.sha256(body).hexdigest()
        self.blobs[digest] = self.folder / digest
        self.blobs[digest].write_bytes(body)
        return digest

    def home(self, device: str) -> DeviceHome:
        return self.homes.setdefault(device, DeviceHome(self.folder / device))

    def peer(self, device: str, role: str, *, trusted: bool = True) -> Peer:
        public = self.home(device).keys().public()
        return Peer(
            device_id=device,
            role=Role(role),
            signing_key=public.signing,
            sealing_key=public.sealing,
            weight=90.0,
            trusted=trusted,
            link_seconds=0.0,
        )

    def work(self, role: str, peers: tuple[Peer, ...], **changes: Any) -> WorkItem:
        values: dict[str, Any] = dict.fromkeys(WorkItem.__slots__, 0)
        values |= {
            "task_id": "tsk_1", "round": 1, "attempt": 1, "role": role, "plan_version": 1, "peers": peers,
            "model_digests": (self.model(0.0),), "model_lines": (0,), "previous_digests": (), "deadline_at": 0.0,
            "noise_multiplier": 0.0, "self_weight": 95.0, "solo_weight": 61.0,
            "training": {"clip_norm": 1.0}, "parameters": PARAMETERS,
            "privacy_unit": "device", "topology": "clusters", "privacy": "trust", "incentive": "payoff",
        }  # fmt: skip
        return WorkItem(**(values | changes))

    def context(self, device: str, work: WorkItem, change: Any, limit: Limit = OPEN_LIMIT) -> RoundContext:
        home = self.home(device)
        platform: Any = self.relay.as_device(device)
        return RoundContext(
            work,
            device,
            home.keys(),
            Learner(np.asarray(change, np.float32)),  # type: ignore[arg-type]
            10,
            Mail(platform, work, device, home.keys(), home.outbox, home.circle()),
            home.ledger(limit),
            {},
            home.memory("tsk_1"),
            home.outbox,
            lambda digest: self.blobs[digest],
            1,
        )

    def acquaint(self, device: str, *others: str) -> None:
        """The owner of a device compares the fingerprints of others."""
        for other in others:
            self.home(device).save_circle(
                self.home(device).circle().with_member(other, self.home(other).keys().public().signing, f"own_{other}")
            )

    def send(self, device: str, change: Any, *, noise: float = 0.0, **changes: Any) -> Delivery:
        """A member's whole part of a round; its owner knows the head."""
        self.acquaint(device, "h")
        work = self.work("member", (self.peer("h", "head"),), noise_multiplier=noise, self_weight=90.0, **changes)
        return Clusters().prepare(self.context(device, work, change))

    def close(self, members: tuple[str, ...], change: Any, *, trusted: bool = True, **changes: Any) -> Delivery:
        """The head's whole part of a round."""
        peers = tuple(self.peer(name, "member", trusted=trusted) for name in members)
        return Clusters().prepare(self.context("h", self.work("head", peers, **changes), change))


@pytest.fixture
def circle(tmp_path: Path) -> Circle:
    return Circle(tmp_path)


def direction(seed: int, norm: float = 0.5) -> Any:
    drawn = np.random.default_rng(seed).standard_normal(SIZE)
    return (drawn / np.linalg.norm(drawn) * norm).astype(np.float32)


def outcomes(delivery: Delivery) -> dict[str, tuple[str, str]]:
    return {report.device_id: (report.outcome, report.note) for report in delivery.members}


def test_every_privacy_of_the_topology_has_this_strategy(circle: Circle) -> None:
    for privacy in ("none", "uniform", "trust"):
        assert isinstance(strategy_for(replace(circle.work("solo", ()), privacy=privacy)), Clusters)


def test_the_head_hands_in_the_unnormalised_sum_by_quality(circle: Circle) -> None:
    a, b, own = direction(1), direction(2), direction(3)
    report = circle.send("a", a)
    assert (report.form, report.tensors, report.weight, report.metrics) == ("report", None, 90.0, {})
    circle.send("b", b)
    delivery = circle.close(("a", "b"), own)
    assert (delivery.form, delivery.weight) == ("sum", 275.0)
    assert delivery.tensors is not None
    assert np.allclose(delivery.tensors["w"], 95.0 * own + 90.0 * a + 90.0 * b, rtol=1e-5, atol=1e-5)
    assert {name: outcome for name, (outcome, _) in outcomes(delivery).items()} == {"a": "delivered", "b": "delivered"}
    assert [charge.mechanism for charge in delivery.privacy] == ["raw"]
    assert circle.home("a").ledger().spent().raw_releases == 1


def test_the_relay_sees_nothing_of_a_members_update(circle: Circle) -> None:
    planted = direction(7)
    circle.send("a", planted)
    (sealed,) = circle.relay.bodies.values()
    assert planted[10:14].tobytes() not in sealed


def test_the_whole_update_is_clipped_before_it_leaves(circle: Circle) -> None:
    circle.send("a", direction(1, norm=50.0))
    delivery = circle.close(("a",), np.zeros(SIZE))
    assert delivery.tensors is not None
    assert np.linalg.norm(delivery.tensors["w"]) == pytest.approx(90.0, rel=1e-5)


def test_below_the_threshold_a_member_noises_and_pays_for_it(circle: Circle) -> None:
    change = direction(1)
    report = circle.send("a", change, noise=0.3)
    (use,) = report.privacy
    assert (use.mechanism, use.unit) == ("gaussian", "device")
    assert use.multiplier == pytest.approx(0.3)
    delivery = circle.close(("a",), np.zeros(SIZE), trusted=False)
    assert delivery.tensors is not None
    noise = delivery.tensors["w"] / 90.0 - change
    assert 0.3 * 0.85 < noise.std() < 0.3 * 1.15
    assert circle.home("a").ledger().spent().releases == 1


def test_a_device_alone_uploads_with_the_largest_noise_and_never_without(circle: Circle) -> None:
    work = circle.work("solo", (), noise_multiplier=0.6, self_weight=62.0)
    delivery = Clusters().prepare(circle.context("s", work, direction(1)))
    assert (delivery.form, delivery.weight) == ("mean", 62.0)
    assert delivery.tensors is not None
    assert 0.5 < delivery.tensors["w"].std() < 0.7
    with pytest.raises(Declined, match="without noise"):
        Clusters().prepare(circle.context("s", replace(work, noise_multiplier=0.0), direction(1)))


def test_a_head_left_alone_noises_as_a_device_alone(circle: Circle) -> None:
    delivery = circle.close(("a", "b"), direction(1))
    assert (delivery.form, outcomes(delivery)["a"]) == ("mean", ("dropped", "no letter came in time"))
    assert delivery.tensors is not None
    assert 0.5 < delivery.tensors["w"].std() < 0.7
    assert [use.multiplier for use in delivery.privacy] == [pytest.approx(0.6)]
    assert delivery.weight == 61.0, "what the plan says it is worth alone"


def test_owners_who_allow_no_raw_release_decline(circle: Circle) -> None:
    circle.acquaint("a", "h")
    work = circle.work("member", (circle.peer("h", "head"),))
    strict = circle.context("a", work, direction(1), Limit(8.0, 1e-5))
    with pytest.raises(Declined, match="allow_raw"):
        Clusters().prepare(strict)
    assert circle.relay.bodies == {}


def test_a_budget_that_is_spent_declines_before_anything_is_sent(circle: Circle) -> None:
    work = circle.work("member", (circle.peer("h", "head"),), noise_multiplier=0.6)
    with pytest.raises(Declined, match="privacy limit of the device's owner"):
        Clusters().prepare(circle.context("a", work, direction(1), Limit(2.0, 1e-5, "device")))
    assert circle.relay.bodies == {}


def test_a_member_that_is_restarted_sends_the_same_letter(circle: Circle) -> None:
    circle.send("a", direction(1), noise=0.3)
    circle.send("a", direction(2), noise=0.3)
    first, second = circle.relay.bodies.values()
    assert first == second
    assert circle.home("a").ledger().spent().releases == 1


def test_another_head_in_the_same_round_is_another_reported_release(circle: Circle) -> None:
    circle.send("a", direction(1), noise=0.3)
    again = circle.send("a", direction(1), noise=0.4, attempt=2, plan_version=2)
    assert [use.multiplier for use in again.privacy] == [pytest.approx(0.3), pytest.approx(0.4)]
    assert circle.home("a").ledger().spent().releases == 2


def test_letters_of_an_older_plan_are_passed_over(circle: Circle) -> None:
    circle.send("a", direction(1))
    circle.send("a", direction(2), attempt=2, plan_version=2)
    delivery = circle.close(("a",), np.zeros(SIZE), attempt=2, plan_version=2)
    assert delivery.tensors is not None
    assert np.allclose(delivery.tensors["w"], 90.0 * direction(2), atol=1e-4)


# --- what a head refuses ----------------------------------------------------------------------------------------------


def forge(circle: Circle, sender: str, header: Header, body: dict[str, Any], *, damage: bool = False) -> None:
    """Puts a letter into the relay under a sender's name."""
    sealed = seal(header, body, circle.home(header.sender).keys(), circle.home("h").keys().public().sealing)
    if damage:
        sealed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    circle.relay.as_device(sender).send_letter("tsk_1", 1, "h", sealed, kind="update", plan_version=1)


SUBJECT = Subject("tsk_1", 1, 1, "update")
SOUND = {"w": direction(5)}


@pytest.mark.parametrize(
    ("header", "body", "damage", "note"),
    [
        (Header(SUBJECT, "a", "h"), SOUND, True, "cannot be opened"),
        (Header(replace(SUBJECT, round=2), "a", "h"), SOUND, False, "expected a letter about"),
        (Header(replace(SUBJECT, task="tsk_2"), "a", "h"), SOUND, False, "expected a letter about"),
        (Header(SUBJECT, "stranger", "h"), SOUND, False, "not a peer"),
        (Header(SUBJECT, "b", "h"), SOUND, False, "was written by b"),
        (Header(SUBJECT, "a", "b"), SOUND, False, "is for b"),
        (Header(SUBJECT, "a", "h"), {"w": direction(5) * np.nan}, False, "not finite"),
        (Header(SUBJECT, "a", "h"), {"w": direction(5)[:7]}, False, "float32[7]"),
        (Header(SUBJECT, "a", "h"), {"v": direction(5)}, False, "other tensors"),
        (Header(SUBJECT, "a", "h"), {"w": direction(5, norm=1.1)}, False, "norm 1.1"),
        (Header(SUBJECT, "a", "h"), {"w": direction(3)}, False, "copy of its head's own"),
        (Header(SUBJECT, "a", "h"), {"w": np.zeros(SIZE, np.float32)}, False, "is zero"),
    ],
)
def test_what_is_damaged_forged_or_worthless_is_rejected_and_rest_goes_on(
    circle: Circle, header: Header, body: dict[str, Any], damage: bool, note: str
) -> None:
    forge(circle, "a", header, body, damage=damage)
    circle.send("b", direction(2))
    delivery = circle.close(("a", "b"), direction(3))
    result = outcomes(delivery)
    assert result["a"][0] == "rejected"
    assert note in result["a"][1]
    if header.sender != "b":
        assert result["b"][0] == "delivered"
        assert delivery.weight == 185.0


def test_who_repeats_models_last_change_or_another_members_update_is_found(circle: Circle) -> None:
    move = direction(9, norm=2.0)
    places: dict[str, Any] = {
        "model_digests": (circle.model(move),),
        "previous_digests": (circle.model(0.0),),
        "round": 2,
    }
    circle.send("a", 0.4 * move, **places)
    circle.send("b", direction(2), **places)
    circle.send("c", 0.7 * direction(2), **places)
    result = outcomes(circle.close(("a", "b", "c"), direction(3), **places))
    assert result["a"] == ("rejected", "its update is a copy of the model's last change")
    assert result["b"][0] == "delivered"
    assert result["c"] == ("rejected", "its update is a copy of b")


def test_noise_only_member_is_detected_and_learning_member_is_not(circle: Circle) -> None:
    aim = direction(100, norm=0.4)
    seen = {}
    for number in range(1, 7):
        honest = aim + direction(number, norm=0.7)
        circle.send("a", honest, round=number)
        circle.send("b", direction(1000 + number, norm=1.0), round=number)
        seen[number] = outcomes(circle.close(("a", "b"), aim + direction(50 + number, norm=0.7), round=number))
        # A crash after the tallies were stored changes nothing.
        assert outcomes(circle.close(("a", "b"), aim + direction(50 + number, norm=0.7), round=number)) == seen[number]
    assert {result["a"][0] for result in seen.values()} == {"delivered"}
    assert [seen[number]["b"][0] for number in (1, 2, 3)] == ["delivered"] * 2 + ["rejected"]
    assert "nothing but noise" in seen[4]["b"][1]


def test_scores_of_pure_noise_are_standard_normal() -> None:
    """√d·cos of isotropic noise with any direction independent of it: mean 0, variance 1."""
    draw = np.random.default_rng(3)
    scores = [
        Tally().plus(draw.standard_normal(SIZE), direction(seed, 1.0).astype(np.float64), None).score()
        for seed in range(3000)
    ]
    assert abs(np.mean(scores)) < 4 / np.sqrt(3000)
    assert 0.9 < np.var(scores) < 1.1


@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_an_honest_member_with_cosine_a_fifth_is_rarely_called_noise(noise: float) -> None:
    draw = np.random.default_rng(4)
    size, accused = 2000, 0
    needed = max(3, int(np.ceil(900 * (noise**2 + 1 / size))))
    for _ in range(60):
        tally = Tally()
        for _ in range(needed):
            way = draw.standard_normal(size)
            way /= np.linalg.norm(way)
            side = draw.standard_normal(size)
            side -= (side @ way) * way
            update = 0.2 * way + np.sqrt(1 - 0.04) * side / np.linalg.norm(side)
            tally = tally.plus(update + noise * draw.standard_normal(size), way, None)
        accused += tally.is_noise(noise, size)
    assert accused <= 1


def test_the_noise_of_an_update_shows_in_its_length() -> None:
    draw = np.random.default_rng(5)
    update = direction(1, norm=2.0) + 0.5 * 2.0 * draw.standard_normal(SIZE)
    assert checks.implied_noise(update.astype(np.float64), 2.0) == pytest.approx(0.5, rel=0.15)
    assert checks.implied_noise(direction(1, norm=1.0).astype(np.float64), 2.0) == 0.0
