"""Owners' browsers before the registry: links, sessions, decisions; and forgetting a device."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from nacl.signing import SigningKey

from coterie.agent.pairing import LinkSecret, decision_message, session_message
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.trust.v1 import trust_pb2 as pb
from services.kit.errors import Conflict, Exhausted, InvalidInput, NotFound, PermissionDenied, Unauthenticated
from tests.contract.trust.conftest import START, World, speak_as


@dataclass
class Browser:
    """A browser that an owner opened a link in."""

    secret: LinkSecret = field(default_factory=LinkSecret.fresh)
    key: SigningKey = field(default_factory=SigningKey.generate)

    @property
    def public(self) -> bytes:
        return bytes(self.key.verify_key)

    def claim(self, link_id: str) -> pb.ClaimLinkRequest:
        proof = self.secret.proof(self.public)
        return pb.ClaimLinkRequest(
            link_id=link_id, token=self.secret.token, browser_key=self.public, proof=proof, name="Firefox"
        )

    def sign_in(self, link_id: str, at: float) -> pb.BeginSessionRequest:
        milliseconds = int(at * 1000)
        signature = self.key.sign(session_message(link_id, milliseconds)).signature
        return pb.BeginSessionRequest(link_id=link_id, at_milliseconds=milliseconds, signature=signature)

    def decide(self, device: str, link_id: str, text: str = '{"act":"pause"}') -> pb.DecideRequest:
        signature = self.key.sign(decision_message(text)).signature
        return pb.DecideRequest(device_id=device, link_id=link_id, text=text, signature=signature)


async def linked(world: World, device: str) -> tuple[Browser, str]:
    """A browser that has taken a link of a device; the caller is that device from now on."""
    speak_as("device", device)
    browser = Browser()
    digest = browser.secret.token_digest
    link = await world.links.MakeLink(pb.MakeLinkRequest(device_id=device, token_digest=digest))
    await world.links.ClaimLink(browser.claim(link.id))
    return browser, link.id


async def test_browser_takes_link_signs_in_and_decides_and_device_answers(world: World) -> None:
    (device,) = await world.devices(1)
    browser, link = await linked(world, device)
    (known,) = (await world.links.ListLinks(pb.ListLinksRequest(device_id=device))).links
    assert (known.browser_key, known.name, known.expires_at) == (browser.public, "Firefox", START + 600)
    session = await world.links.BeginSession(browser.sign_in(link, START))
    assert session.principal.subject == device
    assert session.principal.link_id == link
    principal = await world.registry.Authenticate(pb.AuthenticateRequest(api_key=session.api_key))
    assert principal.link_id == link
    made = await world.links.Decide(browser.decide(device, link))
    waiting = await world.links.ListDecisions(pb.ListDecisionsRequest(device_id=device, waiting=True))
    assert [decision.id for decision in waiting.decisions] == [made.id]
    answer = pb.AnswerDecisionRequest(
        device_id=device, decision_id=made.id, state=words.DECISION_STATE_DONE, note="pauses"
    )
    assert (await world.links.AnswerDecision(answer)).note == "pauses"
    again = pb.AnswerDecisionRequest(
        device_id=device, decision_id=made.id, state=words.DECISION_STATE_REFUSED, note="or not"
    )
    assert (await world.links.AnswerDecision(again)).note == "pauses"  # the first answer stands
    await world.links.PutNote(pb.PutNoteRequest(device_id=device, link_id=link, note=b"sealed"))
    assert (await world.links.ListLinks(pb.ListLinksRequest(device_id=device))).links[0].note == b"sealed"


async def test_a_link_is_taken_once_in_its_time_and_by_who_knows_its_token(world: World) -> None:
    (device,) = await world.devices(1)
    browser, link = await linked(world, device)
    await world.links.ClaimLink(browser.claim(link))  # the same browser may repeat it
    thief = Browser(secret=browser.secret)
    with pytest.raises(Conflict, match="another browser has taken"):
        await world.links.ClaimLink(thief.claim(link))
    with pytest.raises(NotFound, match="does not exist"):
        await world.links.ClaimLink(Browser().claim(link))
    late = Browser()
    request = pb.MakeLinkRequest(device_id=device, token_digest=late.secret.token_digest, lifetime_seconds=60)
    made = await world.links.MakeLink(request)
    world.clock.time += 60
    with pytest.raises(Conflict, match="has expired"):
        await world.links.ClaimLink(late.claim(made.id))
    bad = browser.claim(link)
    bad.browser_key = bytes(31) + b"\x80"
    with pytest.raises(InvalidInput, match="browser_key"):
        await world.links.ClaimLink(bad)


async def test_a_session_is_signed_now_and_never_twice_and_ends_the_one_before(world: World) -> None:
    (device,) = await world.devices(1)
    browser, link = await linked(world, device)
    first = await world.links.BeginSession(browser.sign_in(link, START))
    with pytest.raises(Unauthenticated, match="already used"):
        await world.links.BeginSession(browser.sign_in(link, START))
    with pytest.raises(Unauthenticated, match="clock"):
        await world.links.BeginSession(browser.sign_in(link, START + 301))
    with pytest.raises(Unauthenticated, match="not signed by the browser"):
        await world.links.BeginSession(Browser().sign_in(link, START + 1))
    second = await world.links.BeginSession(browser.sign_in(link, START + 1))
    with pytest.raises(Unauthenticated):
        await world.registry.Authenticate(pb.AuthenticateRequest(api_key=first.api_key))
    world.clock.time += 12 * 3600 - 1
    await world.registry.Authenticate(pb.AuthenticateRequest(api_key=second.api_key))
    world.clock.time += 1
    with pytest.raises(Unauthenticated, match="has expired"):
        await world.registry.Authenticate(pb.AuthenticateRequest(api_key=second.api_key))


async def test_no_admin_and_no_other_device_links_decides_or_answers(world: World) -> None:
    device, other = await world.devices(2)
    browser, link = await linked(world, device)
    made = await world.links.Decide(browser.decide(device, link))
    for role, subject in (("admin", "adm_1"), ("device", other), ("publisher", "pub_1")):
        speak_as(role, subject)
        with pytest.raises(PermissionDenied):
            await world.links.MakeLink(pb.MakeLinkRequest(device_id=device, token_digest=bytes(32)))
        with pytest.raises(PermissionDenied):
            await world.links.Decide(browser.decide(device, link))
        with pytest.raises(PermissionDenied):
            await world.links.PutNote(pb.PutNoteRequest(device_id=device, link_id=link, note=b"lies"))
        with pytest.raises(PermissionDenied):
            await world.links.AnswerDecision(
                pb.AnswerDecisionRequest(device_id=device, decision_id=made.id, state=words.DECISION_STATE_DONE)
            )


async def test_what_another_browser_signed_is_not_even_passed_on(world: World) -> None:
    device, other = await world.devices(2)
    browser, link = await linked(world, device)
    stranger, strange_link = await linked(world, other)
    speak_as("device", device)
    with pytest.raises(NotFound, match="has no such link"):
        await world.links.Decide(stranger.decide(device, strange_link))
    with pytest.raises(Unauthenticated, match="not signed"):
        await world.links.Decide(stranger.decide(device, link))
    for number in range(100):
        await world.links.Decide(browser.decide(device, link, f'{{"number":{number}}}'))
    with pytest.raises(Exhausted, match="start it"):
        await world.links.Decide(browser.decide(device, link))


async def test_an_ended_link_takes_its_sessions_and_what_waits_along(world: World) -> None:
    (device,) = await world.devices(1)
    browser, link = await linked(world, device)
    session = await world.links.BeginSession(browser.sign_in(link, START))
    await world.links.Decide(browser.decide(device, link))
    speak_as("admin", "adm_1")  # a browser was lost: an admin may shut it out, which approves nothing
    await world.links.EndLink(pb.EndLinkRequest(device_id=device, link_id=link))
    await world.links.EndLink(pb.EndLinkRequest(device_id=device, link_id=link))
    with pytest.raises(Unauthenticated):
        await world.registry.Authenticate(pb.AuthenticateRequest(api_key=session.api_key))
    with pytest.raises(NotFound):
        await world.links.BeginSession(browser.sign_in(link, START + 1))
    speak_as("device", device)
    assert not (await world.links.ListDecisions(pb.ListDecisionsRequest(device_id=device))).decisions


async def test_a_revoked_device_s_browsers_are_signed_out(world: World) -> None:
    (device,) = await world.devices(1)
    browser, link = await linked(world, device)
    session = await world.links.BeginSession(browser.sign_in(link, START))
    await world.registry.RevokeDevice(pb.RevokeDeviceRequest(device_id=device))
    with pytest.raises(Unauthenticated):
        await world.registry.Authenticate(pb.AuthenticateRequest(api_key=session.api_key))
    with pytest.raises(Conflict, match="revoked"):
        await world.links.BeginSession(browser.sign_in(link, START + 1))


async def test_device_is_forgotten_with_its_name_ties_and_links_and_its_id_stays(world: World) -> None:
    ada, left = await world.devices(2, "Ada")
    (grace,) = await world.devices(1, "Grace")
    await world.meet(ada, grace, *(START - hours * 3600 for hours in range(1, 9)))
    ask = pb.ExplainTrustRequest(device_a=ada, device_b=grace)
    assert (await world.trust.ExplainTrust(ask)).direct > 0
    await linked(world, ada)
    erased = await world.registry.EraseDevice(pb.EraseDeviceRequest(device_id=ada))
    assert (erased.name, erased.kind, erased.signing_key) == (ada, "", b"")
    speak_as("admin", "adm_1")
    assert erased == await world.registry.GetDevice(pb.GetDeviceRequest(device_id=ada))
    assert erased.state == words.DEVICE_STATE_REVOKED
    await world.registry.EraseDevice(pb.EraseDeviceRequest(device_id=ada))
    assert (await world.trust.ExplainTrust(ask)).direct == 0
    assert not (await world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=grace))).interactions
    assert not (await world.links.ListLinks(pb.ListLinksRequest(device_id=ada))).links
    graph = await world.trust.GetGraph(pb.GetGraphRequest(device_ids=[ada, grace, left]))
    assert not [tie for tie in graph.ties if ada in (tie.device_a, tie.device_b) and tie.direct > 0]
    audit_log = await world.registry.ListAudit(pb.ListAuditRequest(limit=500))
    assert {entry.act for entry in audit_log.entries if entry.object == ada} == {"device.register", "device.erase"}
    assert "Ada-0" not in str(audit_log)
    assert (await world.registry.VerifyAudit(pb.VerifyAuditRequest())).sound
    owner = await world.registry.GetOwner(pb.GetOwnerRequest(owner_id=erased.owner_id))
    assert owner.name == "Ada"
    await world.registry.EraseDevice(pb.EraseDeviceRequest(device_id=left))
    owner = await world.registry.GetOwner(pb.GetOwnerRequest(owner_id=erased.owner_id))
    assert owner.name == owner.id  # with the last device


async def test_meetings_after_a_neighbour_was_forgotten_count_as_ever(world: World) -> None:
    ada, grace, hedy = [(await world.devices(1, name))[0] for name in ("Ada", "Grace", "Hedy")]
    await world.meet(ada, grace, START - 7200)
    await world.meet(grace, hedy, START - 7200)
    await world.registry.EraseDevice(pb.EraseDeviceRequest(device_id=ada))
    await world.meet(grace, hedy, START - 3600)
    explained = await world.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=grace, device_b=hedy))
    assert explained.direct > 0
