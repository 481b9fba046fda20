"""Attacks on owners: forged decisions, replayed ones, another owner's browser, or a stolen link."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from nacl.signing import SigningKey

from coterie.agent.home import DeviceHome, DeviceIdentity
from coterie.agent.owner_decisions import Owner, note_of
from coterie.agent.pairing import BadLink, Choice, LinkSecret, decision_message, seal, terms_of, unseal
from coterie.errors import BadHome, Declined, NotFound
from coterie.learning.training import model_bytes
from coterie.records import BrowserLink, Decision, DecisionState, Task
from services.gateway.access.table import ACCESS, BROWSER_ROUTES, DEVICE
from tests.contract.gateway.conftest import app, bearer, client, platform
from tests.contract.gateway.fakes import FakePlatform
from tests.contract.gateway.test_gateway_access import GUARDED, _concrete, _method
from tests.e2e.stand_in import StandIn
from tests.unit.coterie.agent.test_agent_rounds import agent_at, module

__all__ = ["app", "client", "platform"]
ME, LINK = "dev_mine", "lnk_1"
WEEK = 7 * 86_400.0


@dataclasses.dataclass
class Courier:
    """A platform that hands over whatever it likes, and what it was answered."""

    waiting: list[Decision] = dataclasses.field(default_factory=list)
    answers: list[tuple[str, DecisionState, str]] = dataclasses.field(default_factory=list)
    notes: list[bytes] = dataclasses.field(default_factory=list)

    def decisions(self, _: str, *, waiting: bool) -> Sequence[Decision]:
        assert waiting
        return list(self.waiting)

    def answer_decision(self, _: str, decision: str, state: DecisionState, note: str) -> None:
        self.answers.append((decision, state, note))

    def put_note(self, _: str, __: str, note: bytes) -> None:
        self.notes.append(note)


class OwnerFixture:
    """A device with one linked browser, and everything that was done in its owner's name."""

    def __init__(self, folder: Path) -> None:
        self.home, self.courier, self.done = DeviceHome(folder), Courier(), list[Choice]()
        self.home.save_identity(DeviceIdentity(ME, "phone", "own_1", "http://127.0.0.1:9", "ck"))
        self.browser, self.secret = SigningKey.generate(), LinkSecret.fresh()
        self.home.save_browser(self.secret.pinned(self.link()))
        platform: Any = self.courier
        self.owner = Owner(platform, self.home, ME)

    def link(self, **changes: Any) -> BrowserLink:
        key = bytes(self.browser.verify_key)
        link = BrowserLink(
            id=LINK,
            device_id=ME,
            created_at=0.0,
            expires_at=0.0,
            claimed_at=1.0,
            name="Firefox",
            browser_key=key,
            proof=self.secret.proof(key),
            note=b"",
        )
        return dataclasses.replace(link, **changes)

    def decision(self, signer: SigningKey | None = None, **fields: Any) -> Decision:
        content = {"act": "pause", "device": ME, "link": LINK, "number": 7, "until": time.time() + WEEK} | fields
        text = json.dumps(content)
        signature = (signer or self.browser).sign(decision_message(text)).signature
        return Decision(
            id="dcn_1",
            device_id=ME,
            link_id=LINK,
            at=time.time(),
            text=text,
            signature=signature,
            state=DecisionState.WAITING,
            note="",
        )

    def hear(self, decision: Decision) -> str:
        """Hands a decision over; what the device answers."""
        self.courier.waiting = [decision]
        self.owner.heed(self.do)
        return self.courier.answers[-1][2]

    def do(self, choice: Choice) -> str:
        self.done.append(choice)
        return "done"


@pytest.fixture
def owner_fixture(tmp_path: Path) -> OwnerFixture:
    return OwnerFixture(tmp_path / "home")


def test_what_the_linked_browser_signed_is_done(owner_fixture: OwnerFixture) -> None:
    assert owner_fixture.hear(owner_fixture.decision(number=1)) == "done"
    assert owner_fixture.hear(owner_fixture.decision(act="join", task="tsk_1", terms="0a", number=2)) == "done"
    assert [item.act for item in owner_fixture.done] == ["pause", "join"]
    assert [state for _, state, _ in owner_fixture.courier.answers] == [DecisionState.DONE] * 2


def test_an_admin_who_has_the_platform_cannot_decide_for_an_owner(owner_fixture: OwnerFixture) -> None:
    """It knows the link, the browser's public key and every decision made so far, and holds any key but the one."""
    admin = SigningKey.generate()
    honest = owner_fixture.decision(number=3)
    for forged in (
        owner_fixture.decision(signer=admin),
        dataclasses.replace(honest, signature=bytes(64)),
        dataclasses.replace(honest, signature=b""),
        dataclasses.replace(honest, text=honest.text.replace("pause", "resume")),
        dataclasses.replace(honest, text=honest.text + " "),
    ):
        assert "not signed by the linked browser" in owner_fixture.hear(forged)
    assert not owner_fixture.done


def test_decision_is_not_done_twice_nor_after_later_one_nor_after_restart(
    owner_fixture: OwnerFixture, tmp_path: Path
) -> None:
    first, second = owner_fixture.decision(act="pause", number=5), owner_fixture.decision(act="resume", number=6)
    owner_fixture.hear(first)
    owner_fixture.hear(second)
    for replayed in (first, second):
        assert "heard before" in owner_fixture.hear(replayed)
    platform: Any = owner_fixture.courier
    owner_fixture.owner = Owner(platform, DeviceHome(tmp_path / "home"), ME)  # the agent was started again
    assert "heard before" in owner_fixture.hear(first)
    assert [item.act for item in owner_fixture.done] == ["pause", "resume"]


def test_decisions_of_another_owner_or_device_are_not_accepted(owner_fixture: OwnerFixture) -> None:
    stranger = SigningKey.generate()
    there = dataclasses.replace(owner_fixture.decision(signer=stranger), link_id="lnk_2")
    assert "never linked on this device" in owner_fixture.hear(there)
    assert "another device" in owner_fixture.hear(
        owner_fixture.decision(device="dev_other")
    )  # of an owner with two devices
    assert "another device or link" in owner_fixture.hear(owner_fixture.decision(link="lnk_2"))
    assert not owner_fixture.done


def test_a_decision_kept_back_until_it_is_too_late_is_not_done(owner_fixture: OwnerFixture) -> None:
    assert "too late" in owner_fixture.hear(owner_fixture.decision(until=time.time() - 1))
    assert not owner_fixture.done


@pytest.mark.parametrize(
    "fields",
    [
        {"act": "erase"},
        {"act": "join"},
        {"act": "join", "task": "tsk_1"},
        {"act": "pause", "task": "tsk_1"},
        {"number": True},
        {"number": 0},
        {"number": 1 << 60},
        {"until": "for ever"},
        {"until": float("nan")},
        {"more": 1},
        {"device": 3},
    ],
    ids=str,
)
def test_what_cannot_be_understood_is_not_done(owner_fixture: OwnerFixture, fields: dict[str, Any]) -> None:
    assert owner_fixture.hear(owner_fixture.decision(**fields)).startswith("not believed")
    assert not owner_fixture.done


def test_a_decision_the_device_could_not_carry_out_says_why_and_is_over(owner_fixture: OwnerFixture) -> None:
    def fail(_: Choice) -> str:
        raise Declined("the task is full")

    owner_fixture.courier.waiting = [owner_fixture.decision(number=9)]
    owner_fixture.owner.heed(fail)
    assert owner_fixture.courier.answers == [("dcn_1", DecisionState.REFUSED, "the task is full")]
    assert "heard before" in owner_fixture.hear(owner_fixture.decision(number=9))


def test_a_key_put_in_by_who_carries_the_link_is_not_pinned(owner_fixture: OwnerFixture) -> None:
    """The platform sees the token when the browser hands it in, and may take the link itself: it lacks the secret."""
    admin = bytes(SigningKey.generate().verify_key)
    for proof in (
        bytes(32),
        LinkSecret(owner_fixture.secret.token).proof(admin),
        owner_fixture.secret.proof(owner_fixture.link().browser_key),
    ):
        with pytest.raises(BadLink, match="put in another"):
            owner_fixture.secret.pinned(owner_fixture.link(browser_key=admin, proof=proof))
    small = bytes(31) + b"\x80"
    with pytest.raises(BadLink, match="cannot be used"):
        owner_fixture.secret.pinned(owner_fixture.link(browser_key=small, proof=owner_fixture.secret.proof(small)))
    with pytest.raises(BadLink, match="not a link id"):
        owner_fixture.secret.pinned(owner_fixture.link(id="../../keys"))


def test_notes_are_read_by_the_browser_alone_and_not_changed(owner_fixture: OwnerFixture) -> None:
    owner_fixture.owner.tell(now=True)
    (note,) = owner_fixture.courier.notes
    assert b"circle" not in note
    content = json.loads(unseal(owner_fixture.secret.sealing, note))
    assert content["privacy"]["spent"] == 0
    assert content.keys() - {"at"} == note_of(owner_fixture.home).keys()
    for at in (0, 40, len(note) - 1):
        changed = bytearray(note)
        changed[at] ^= 1
        with pytest.raises(BadLink):
            unseal(owner_fixture.secret.sealing, bytes(changed))
    with pytest.raises(BadLink):
        unseal(LinkSecret.fresh().sealing, note)
    with pytest.raises(BadLink):
        unseal(owner_fixture.secret.sealing, note[:40])
    for size in (0, 1, 31, 32, 33, 1000):
        assert unseal(owner_fixture.secret.sealing, seal(owner_fixture.secret.sealing, bytes(size))) == bytes(size)


def test_a_pin_that_others_may_read_is_refused(owner_fixture: OwnerFixture) -> None:
    (pin,) = (owner_fixture.home.folder / "browsers").glob("lnk_*.json")
    pin.chmod(0o644)
    with pytest.raises(BadHome, match="lnk_1"):
        owner_fixture.home.browsers()


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn(model_bytes(module()), rounds=1, training={"epochs": 1, "batch_size": 8}) as server:
        yield server


def test_a_task_that_changed_since_its_owner_saw_it_is_not_joined(stand_in: StandIn, tmp_path: Path) -> None:
    agent = agent_at(stand_in, tmp_path)
    shown: Task = agent.platform.find_task("tsk_1")
    terms = terms_of(shown.id, shown.specification)
    bait = dataclasses.replace(shown.specification, privacy="central", parameters={"privacy": {"epsilon": 0.1}})
    with pytest.raises(Declined, match="not what the page showed"):
        agent.join("tsk_1", terms=terms_of(shown.id, bait))
    assert not stand_in.enrolled
    agent.join("tsk_1", terms=terms)
    assert stand_in.enrolled
    agent.close()


def test_a_device_without_a_link_waits_for_no_owner(stand_in: StandIn, tmp_path: Path) -> None:
    agent = agent_at(stand_in, tmp_path)
    with pytest.raises(BadHome, match="coterie device link"):
        agent.run(ask_owner=True)
    agent.close()


async def test_a_browser_s_key_does_no_work_and_a_device_s_key_decides_nothing(
    client: httpx.AsyncClient, platform: FakePlatform
) -> None:
    closed = [route for route in GUARDED if DEVICE in ACCESS[route.name] and route.name not in BROWSER_ROUTES]
    assert {"get_work", "put_update", "enrol", "send_letter", "make_link", "put_note", "answer_decision"} <= {
        route.name for route in closed
    }
    for route in closed:
        path = _concrete(route.path).replace("/devices/other_1", "/devices/dev_1")
        answer = await client.request(_method(route), path, headers=bearer("browser"))
        assert (answer.status_code, answer.json()["reason"]) == (403, "role_not_allowed"), route.path
    assert {call.method for call in platform.calls} == {"Authenticate"}
    body = {"text": "{}", "signature": "A" * 86 + "=="}
    answer = await client.post("/v1/devices/dev_1/decisions", headers=bearer("device"), json=body)
    assert (answer.status_code, answer.json()["reason"]) == (403, "not_linked")
    answer = await client.post("/v1/devices/dev_2/decisions", headers=bearer("browser"), json=body)
    assert (answer.status_code, answer.json()["reason"]) == (403, "not_yours")
    answer = await client.post("/v1/devices/dev_1/decisions", headers=bearer("browser"), json=body)
    assert answer.status_code == 201
    assert platform.called("Decide")[0].request.link_id == "lnk_1"  # the key's own, whatever the body says


def test_a_late_answer_is_ignored(owner_fixture: OwnerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any) -> None:
        raise NotFound("ended", status=404)

    monkeypatch.setattr(owner_fixture.courier, "answer_decision", gone)
    monkeypatch.setattr(owner_fixture.courier, "put_note", gone)
    owner_fixture.courier.waiting = [owner_fixture.decision()]
    owner_fixture.owner.heed(owner_fixture.do)
    assert owner_fixture.done
    owner_fixture.owner.tell(now=True)
    assert not owner_fixture.home.browsers()  # its link was ended, so it decides no more
