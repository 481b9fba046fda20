"""Relations and imports over gRPC, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from coterie.records.enums import RelationKind
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.trust.v1 import trust_pb2 as pb
from services.kit.database.engine import Database
from services.kit.errors import CoterieError, InvalidInput, NotFound, PermissionDenied, TooLarge
from services.kit.rpc.enums import number as number_of
from services.kit.rpc.enums import word
from services.kit.rpc.principal import SERVICE, acting_as, set_principal
from tests.contract.trust.conftest import START, Keypair, World, open_world, speak_as

HOUR = 3_600.0


async def refused(kind: type[CoterieError], reason: str, call: Any) -> CoterieError:
    with pytest.raises(kind) as caught:
        await call
    assert caught.value.reason == reason
    return caught.value


def set_platform() -> None:
    set_principal(SERVICE)


async def related(world: World, device: str) -> list[tuple[str, str]]:
    reply = await world.trust.ListRelations(pb.ListRelationsRequest(device_id=device))
    assert {item.a for item in reply.relations} <= {device}
    return [(word(RelationKind, item.kind), item.b) for item in reply.relations]


async def derived(world: World, *kinds: str) -> dict[str, int]:
    reply = await world.trust.DeriveRelations(
        pb.DeriveRelationsRequest(kinds=[number_of(RelationKind(kind)) for kind in kinds])
    )
    return {kind: number for kind, number in reply.counts.items() if number}


async def meet(world: World, a: str, b: str, times: int, *, seconds: float, every: float) -> None:
    items = [
        pb.Interaction(
            id=f"{a[-8:]}{b[-8:]}{k}",
            device_a=a,
            device_b=b,
            positive=True,
            duration_seconds=seconds,
            at=START - 1e6 + k * every,
            kind="meeting",
        )
        for k in range(times)
    ]
    await world.vouch(*items)


async def make(world: World, token: str, name: str, **profile: str) -> str:
    pair = Keypair()
    device = pair.profile(name)
    for field, value in profile.items():
        setattr(device, field, value)
    request = pb.RegisterDeviceRequest(token=token, device=device, proof=pair.proof())
    return (await world.registry.RegisterDevice(request)).device.id


async def test_relations_hold_as_soon_as_their_facts_do(world: World) -> None:
    ada, bob = await world.owner("Ada"), await world.owner("Bob")
    hers, his = await world.token(ada), await world.token(bob)
    a = await make(world, hers, "a", brand="Acme", model="X1")
    b = await make(world, hers, "b")
    c = await make(world, his, "c", brand="Acme", model="X1")
    assert await related(world, a) == [("ownership", b), ("parental", c)]
    request = pb.DeclareFriendshipRequest(owner_a=bob, owner_b=ada, strength=0.7)
    declared = await world.trust.DeclareFriendship(request)
    assert (declared.kind, declared.a, declared.b) == (words.RELATION_KIND_FRIENDSHIP, bob, ada)
    assert declared.strength == 0.7
    assert await related(world, c) == [("parental", a), ("friendship", a), ("friendship", b)]
    explained = await world.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=c, device_b=a))
    assert [item.because for item in explained.relations] == ["both are a Acme X1 (camera)", "their owners are friends"]
    assert explained.trust == pytest.approx(0.8 * 0.7)  # friendship of both counts as five meetings of 0.8 · 0.7
    assert "relations alone are worth direct trust 0.560" in explained.text
    assert await derived(world) == {"ownership": 1, "parental": 1, "friendship": 2}
    await world.trust.DeclareFriendship(pb.DeclareFriendshipRequest(owner_a=ada, owner_b=bob, strength=0))
    assert await related(world, b) == [("ownership", a)]


async def test_friendship_needs_two_known_owners_and_a_strength(world: World) -> None:
    ada, bob = await world.owner("Ada"), await world.owner("Bob")
    for owner_a, owner_b, strength, kind, reason in (
        (ada, ada, 0.5, InvalidInput, "invalid_field"),
        (ada, bob, 1.5, InvalidInput, "invalid_field"),
        (ada, "own_" + "0" * 26, 0.5, NotFound, "unknown_owner"),
    ):
        request = pb.DeclareFriendshipRequest(owner_a=owner_a, owner_b=owner_b, strength=strength)
        await refused(kind, reason, world.trust.DeclareFriendship(request))


async def test_a_device_declares_friendship_for_its_own_owner(world: World) -> None:
    ada, bob = await world.owner("Ada"), await world.owner("Bob")
    device = (await world.register(await world.token(ada), "cam")).device
    speak_as("device", device.id, ada)
    forged = pb.DeclareFriendshipRequest(owner_a=bob, owner_b=ada, strength=1)
    await refused(PermissionDenied, "not_allowed", world.trust.DeclareFriendship(forged))
    own = pb.DeclareFriendshipRequest(owner_a=ada, owner_b=bob, strength=1)
    declared = await world.trust.DeclareFriendship(own)
    assert (declared.strength, declared.confirmed, declared.because) == (1.0, False, "declared by one")
    listed = await world.trust.ListFriendships(pb.ListFriendshipsRequest(owner_id=ada))
    assert [(item.a, item.b, item.because) for item in listed.relations] == [(ada, bob, "waits for the other owner")]
    foreign = pb.ListFriendshipsRequest(owner_id=bob)
    await refused(PermissionDenied, "not_allowed", world.trust.ListFriendships(foreign))
    his = (await world.register(await as_platform(world, bob), "phone")).device
    assert await related(world, device.id) == []  # one owner alone declares nothing
    speak_as("device", his.id, bob)
    back = await world.trust.DeclareFriendship(pb.DeclareFriendshipRequest(owner_a=bob, owner_b=ada, strength=0.6))
    assert (back.strength, back.confirmed) == (0.6, True)  # the weaker of both
    assert await related(world, his.id) == [("friendship", device.id)]
    gone = await world.trust.DeclareFriendship(pb.DeclareFriendshipRequest(owner_a=bob, owner_b=ada, strength=0))
    assert (gone.confirmed, gone.because) == (False, "withdrawn")
    again = await world.trust.DeclareFriendship(pb.DeclareFriendshipRequest(owner_a=bob, owner_b=ada, strength=1))
    assert not again.confirmed  # hers went with it


async def as_platform(world: World, owner: str) -> str:
    """A token of an owner, issued by an admin."""
    with acting_as(SERVICE):
        return await world.token(owner)


async def test_services_get_owners_declarations_in_both_directions(world: World) -> None:
    """Ada says 0.9 of Bob and he 0.4 of her; Cy's declaration is unconfirmed and does not count."""
    ada, bob, cy = [await world.owner(name) for name in ("Ada", "Bob", "Cy")]
    devices = [
        (await world.register(await world.token(owner), f"d{k}")).device.id
        for k, owner in enumerate((ada, bob, cy, ada))
    ]
    for device, (one, other, strength) in zip(
        devices, ((ada, bob, 0.9), (bob, ada, 0.4), (cy, ada, 1.0)), strict=False
    ):
        speak_as("device", device, one)
        request = pb.DeclareFriendshipRequest(owner_a=one, owner_b=other, strength=strength)
        await world.trust.DeclareFriendship(request)
    with pytest.raises(PermissionDenied):
        await world.trust.GetDeclared(pb.GetDeclaredRequest(device_ids=devices))
    with acting_as(SERVICE):
        result = await world.trust.GetDeclared(pb.GetDeclaredRequest(device_ids=devices))
    assert list(result.owners) == [0, 1, 2, 0]
    declarations = zip(result.rows, result.columns, result.strengths, strict=True)
    assert sorted(declarations) == [(0, 1, 0.9), (1, 0, 0.4)]


async def test_meetings_make_social_and_co_located_relations(world: World) -> None:
    walker, friend, hurried = [(await world.devices(1, owner=f"P{k}"))[0] for k in range(3)]
    (fixed,) = await world.devices(1, owner="City")
    await world.registry.UpdateDevice(pb.UpdateDeviceRequest(device_id=fixed, location=pb.Location(x_metres=5)))
    await meet(world, walker, friend, 3, seconds=1_800, every=7 * HOUR)
    await meet(world, walker, hurried, 3, seconds=1_799, every=7 * HOUR)
    await meet(world, walker, fixed, 14, seconds=10, every=HOUR)
    await meet(world, friend, fixed, 13, seconds=10, every=HOUR)
    assert await derived(world, "social") == {"social": 1}
    assert await derived(world) == {"social": 1, "co-location": 1}
    assert await related(world, walker) == [("social", friend), ("co-location", fixed)]
    assert await derived(world) == {"social": 1, "co-location": 1}  # deriving again changes nothing
    newer = pb.DeriveRelationsRequest.FromString(b"\x12\x01\x63")  # a kind 99
    await refused(InvalidInput, "invalid_field", world.trust.DeriveRelations(newer))


async def test_relations_follow_meetings_without_being_asked_for(world: World) -> None:
    """The third long meeting of two people makes them related, the fourth stronger; a stranger's word makes nothing."""
    walker, friend, liar = [(await world.devices(1, owner=f"P{k}"))[0] for k in range(3)]
    moments = [START - 2e5 + k * 8 * HOUR for k in range(4)]  # a second report is waited for seven days
    await world.meet(walker, friend, *moments[:2], seconds=1_800.0)
    assert await related(world, walker) == []
    await world.meet(walker, friend, moments[2], seconds=1_800.0)
    assert await related(world, walker) == [("social", friend)]
    first = (await world.trust.ListRelations(pb.ListRelationsRequest(device_id=walker))).relations[0]
    world.clock.time += 100
    await world.meet(walker, friend, moments[3], seconds=1_800.0)
    (held,) = (await world.trust.ListRelations(pb.ListRelationsRequest(device_id=walker))).relations
    assert (first.strength, held.strength, held.since) == (0.5, 4 / 7, first.since)
    assert held.because == "they met 4 times, long enough and far enough apart in time"
    speak_as("device", liar)
    for k, at in enumerate(moments):  # the other end says nothing
        alone = pb.Interaction(
            id=f"lie{k}", device_a=liar, device_b=walker, positive=True, duration_seconds=9_999, at=at, kind="meeting"
        )
        await world.trust.RecordInteractions(pb.RecordInteractionsRequest(interactions=[alone]))
    set_platform()
    assert await related(world, liar) == []
    assert await derived(world) == {"social": 1}


async def test_a_public_vehicle_and_a_person_meet_by_their_own_rule(world: World) -> None:
    """SOR2: three meetings of a minute, an hour apart; between two people the same is nothing."""
    city = (await world.registry.CreateOwner(pb.CreateOwnerRequest(name="City", public=True))).id
    bus = (await world.register(await world.token(city), "bus 1")).device.id
    tram = (await world.register(await world.token(city), "tram 1")).device.id
    person, other = [(await world.devices(1, owner=f"P{k}"))[0] for k in range(2)]
    for a, b in ((bus, person), (person, other), (bus, tram)):
        await meet(world, a, b, 3, seconds=60, every=2 * HOUR)
    assert await related(world, person) == [("social-public", bus)]
    assert await related(world, tram) == [("ownership", bus)]
    assert (await derived(world))["social-public"] == 1
    with acting_as(SERVICE):
        kinds = [words.RELATION_KIND_SOCIAL_PUBLIC]
        result = await world.trust.GetRelated(pb.GetRelatedRequest(device_ids=[person, bus, other], kinds=kinds))
    assert list(zip(result.rows, result.columns, strict=True)) == [(0, 1)]


async def test_meetings_are_recounted_when_a_device_becomes_static(world: World) -> None:
    """Fourteen long meetings are social between walkers; once one of them has a place, they are visits to it."""
    lamp, walker, third = [(await world.devices(1, owner=f"P{k}"))[0] for k in range(3)]
    await meet(world, lamp, walker, 14, seconds=1_800, every=8 * HOUR)
    await meet(world, walker, third, 3, seconds=1_800, every=8 * HOUR)
    assert await related(world, walker) == [("social", lamp), ("social", third)]
    await world.registry.UpdateDevice(pb.UpdateDeviceRequest(device_id=lamp, location=pb.Location(x_metres=5)))
    assert await related(world, walker) == [("co-location", lamp), ("social", third)]
    assert await derived(world) == {"social": 1, "co-location": 1}


async def test_a_claimed_position_alone_relates_a_device_to_no_other(world: World) -> None:
    """Fourteen visits of any length make a relation, so a liar says it is a lamp post that its victim visits."""
    liar, victim = [(await world.devices(1, owner=f"P{k}"))[0] for k in range(2)]
    await world.registry.UpdateDevice(pb.UpdateDeviceRequest(device_id=liar, location=pb.Location(x_metres=5)))
    speak_as("device", liar)
    visits = [
        pb.Interaction(
            id=f"lie{k}", device_a=liar, device_b=victim, positive=True, at=START - k * HOUR, kind="meeting",
            duration_seconds=1,
        )
        for k in range(20)
    ]  # fmt: skip
    await world.trust.RecordInteractions(pb.RecordInteractionsRequest(interactions=visits))
    set_platform()
    assert await related(world, liar) == []
    assert await derived(world) == {}


async def test_meetings_that_an_earlier_version_stored_are_counted_at_the_start(world: World) -> None:
    walker, friend = [(await world.devices(1, owner=f"P{k}"))[0] for k in range(2)]
    await meet(world, walker, friend, 2, seconds=1_800, every=8 * HOUR)
    database = Database(world.settings.database_for("trust"), "trust")
    async with database.writing() as tx:
        await tx.execute(sa.text("DELETE FROM encounters"))
    await database.close()
    again, channel = await open_world(world.settings, world.clock)
    third = pb.Interaction(
        id="third", device_a=walker, device_b=friend, positive=True, duration_seconds=1_800, at=START, kind="meeting"
    )
    await again.vouch(third)
    assert await related(again, walker) == [("social", friend)]
    await channel.close()
    await again.app.stop()


async def test_common_tasks_make_colleagues(world: World) -> None:
    a, b, c = [(await world.devices(1, owner=f"P{k}"))[0] for k in range(3)]
    items = []
    for task in range(3):
        pairs = [(a, b), (b, c)] if task else [(a, b)]
        items += [
            pb.Interaction(
                id=f"tsk_{task}.1.{x[-6:]}.{y[-6:]}",
                device_a=x,
                device_b=y,
                positive=True,
                duration_seconds=1,
                at=START,
                kind="delivered",
            )
            for x, y in pairs
        ]
    await world.trust.RecordInteractions(pb.RecordInteractionsRequest(interactions=items))
    assert await related(world, a) == [("co-work", b)]
    assert await derived(world) == {"co-work": 1}
    assert await related(world, a) == [("co-work", b)]
    again = [
        pb.Interaction(id=f"tsk_{task}.2.{b[-6:]}.{c[-6:]}", device_a=b, device_b=c, positive=True, duration_seconds=1,
                       at=START, kind="delivered")
        for task in (1, 2)
    ]  # fmt: skip
    await world.trust.RecordInteractions(pb.RecordInteractionsRequest(interactions=again))
    assert await related(world, c) == [], "another round of the same two tasks is not a third task"


async def test_tasks_that_both_failed_or_that_one_spoilt_make_no_colleagues(world: World) -> None:
    """Three tasks joined with rubbish updates make no relation, also when all relations are derived again."""
    liar, victim = [(await world.devices(1, owner=f"P{k}"))[0] for k in range(2)]
    items = [
        pb.Interaction(
            id=f"tsk_{task}.1.a.b", device_a=liar, device_b=victim, duration_seconds=1, at=START, kind="rejected"
        )
        for task in range(4)
    ]
    await world.trust.RecordInteractions(pb.RecordInteractionsRequest(interactions=items))
    assert await related(world, liar) == []
    assert await derived(world) == {}


async def test_a_rederived_relation_keeps_its_first_since(world: World) -> None:
    """Tasks that run count relations as of their first plan: deriving them again takes none away."""
    walker, friend, third = [(await world.devices(1, owner=f"P{k}"))[0] for k in range(3)]
    await meet(world, walker, friend, 3, seconds=1_800, every=8 * HOUR)
    before = world.clock.now()
    world.clock.time += HOUR
    await meet(world, walker, third, 3, seconds=1_800, every=9 * HOUR)
    assert await derived(world) == {"social": 2}
    kinds = [words.RELATION_KIND_SOCIAL]
    with acting_as(SERVICE):
        asked = pb.GetRelatedRequest(device_ids=[walker, friend, third], kinds=kinds, at=before)
        result = await world.trust.GetRelated(asked)
    assert list(zip(result.rows, result.columns, strict=True)) == [(0, 1)]


async def test_relations_page_by_cursor(world: World) -> None:
    first, *others = await world.devices(5)
    seen: list[str] = []
    cursor = ""
    while len(seen) < len(others):
        request = pb.ListRelationsRequest(device_id=first, limit=3, cursor=cursor)
        reply = await world.trust.ListRelations(request)
        seen += [item.b for item in reply.relations]
        cursor = reply.next_cursor
    assert seen == others


async def run_import(world: World, name: str, chunks: Sequence[Sequence[pb.ImportRow]]) -> pb.ImportReply:
    async def stream() -> AsyncIterator[pb.ImportChunk]:
        header = pb.ImportHeader(name=name, owner_name="Town", synthetic=True)
        yield pb.ImportChunk(header=header, rows=chunks[0] if chunks else [])
        for rows in chunks[1:]:
            yield pb.ImportChunk(rows=rows)

    return await world.trust.Import(stream())


def meeting(line: int, a: str, b: str, duration: float = 60.0) -> pb.ImportRow:
    act = pb.Interaction(device_a=a, device_b=b, positive=True, duration_seconds=duration, at=START)
    return pb.ImportRow(line=line, interaction=act)


async def test_an_import_makes_devices_interactions_and_relations(world: World) -> None:
    rows = [
        pb.ImportRow(line=1, device=pb.Device(name="lamp", kind="street light"), owner_name="City"),
        pb.ImportRow(line=2, device=pb.Device(name="phone", kind="smartphone")),
        meeting(3, "lamp", "phone"),
        meeting(4, "phone", "watch"),
        pb.ImportRow(line=5, relation=pb.Relation(kind=words.RELATION_KIND_SOCIAL, a="watch", b="lamp", strength=0.4)),
    ]
    reply = await run_import(world, "city", [rows[:2], rows[2:]])
    assert (reply.last_line, reply.devices, reply.interactions, reply.relations) == (5, 3, 2, 1)
    listed = (await world.registry.ListDevices(pb.ListDevicesRequest())).devices
    ids = {device.name: device.id for device in listed}
    assert sorted(ids) == ["lamp", "phone", "watch"]
    assert {device.key_version for device in listed} == {0}
    explained = await world.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=ids["lamp"], device_b=ids["watch"]))
    assert explained.indirect == pytest.approx(1 / 36)  # one good minute each: 1/(1 + κ), κ = 5
    assert [item.kind for item in explained.relations] == [words.RELATION_KIND_SOCIAL]
    again = await run_import(world, "city", [rows])
    assert again == reply  # lines stored before are skipped
    more = await run_import(world, "city", [[*rows, meeting(6, "lamp", "watch")]])
    assert (more.last_line, more.devices, more.interactions) == (6, 3, 3)
    assert await world.trust.GetImport(pb.GetImportRequest(name="city")) == more


async def test_a_bad_line_is_named_and_its_chunk_left_out(world: World) -> None:
    good = [meeting(1, "a", "b"), meeting(2, "b", "c")]
    for bad, reason, where in (
        ([meeting(3, "c", "d"), meeting(4, "a", "b", -1.0)], "invalid_interactions", "line 4"),
        ([meeting(3, "c", "c")], "invalid_interactions", "line 3"),
        ([pb.ImportRow(line=7, device=pb.Device(name=""))], "bad_import", "line 7"),
        ([pb.ImportRow(line=8, relation=pb.Relation(a="a", b="b"))], "bad_import", "line 8"),
        ([meeting(5, "a", "b"), meeting(4, "b", "c")], "bad_import", "line numbers must increase"),
    ):
        error = await refused(InvalidInput, reason, run_import(world, "town", [good, bad]))
        assert where in error.message
        state = await world.trust.GetImport(pb.GetImportRequest(name="town"))
        assert (state.last_line, state.devices, state.interactions) == (2, 3, 2)
    await refused(InvalidInput, "invalid_field", run_import(world, "", []))
    await refused(NotFound, "unknown_import", world.trust.GetImport(pb.GetImportRequest(name="nowhere")))
    many = [[pb.ImportRow(line=k + 1) for k in range(10_001)]]
    await refused(TooLarge, "too_many", run_import(world, "big", many))


async def test_an_imported_device_is_claimed_by_registering_under_its_name(world: World) -> None:
    await run_import(world, "town", [[meeting(1, "phone", "watch")]])
    owners = (await world.registry.ListOwners(pb.ListOwnersRequest())).owners
    listed = (await world.registry.ListDevices(pb.ListDevicesRequest())).devices
    phone = next(device for device in listed if device.name == "phone")
    claimed = (await world.register(await world.token(owners[0].id), "phone")).device
    assert (claimed.id, claimed.key_version, claimed.kind) == (phone.id, 1, "camera")
    assert len(claimed.signing_key) == 32


async def test_relations_count_before_evidence_only_when_enabled(world: World) -> None:
    """(P − νN + k₀·c)/(K′ + max(κ, k₀)) with c = 0.9 and k₀ = 5 for devices of one owner; one bad minute counts −2."""
    a, b, c = await world.devices(3)
    bad = pb.Interaction(id="1", device_a=a, device_b=b, duration_seconds=60, at=START)
    await world.vouch(bad)
    plain = await world.trust.GetMatrix(pb.GetMatrixRequest(device_ids=[a, b, c]))
    assert list(plain.direct) == []
    await world.app.stop()
    settings = world.settings.model_copy(update={"relation_priors": True})
    other, channel = await open_world(settings, world.clock)
    matrix = await other.trust.GetMatrix(pb.GetMatrixRequest(device_ids=[a, b, c]))
    assert list(matrix.direct) == pytest.approx([(-2 + 5 * 0.9) / 6, 0.9, 0.9])
    alone = await other.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=b, device_b=c))
    assert "relations alone are worth direct trust 0.900" in alone.text
    before = await other.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=b, device_b=c, at=START - 1))
    assert before.direct == 0.0  # they were not registered yet
    history = await other.trust.GetHistory(pb.GetHistoryRequest(device_a=a, device_b=b, points=2))
    assert [point.direct for point in history.points] == pytest.approx([2.5 / 6, 2.5 / 6])
    await channel.close()
    await other.app.stop()


async def test_other_decay_or_duration_settings_recompute_the_sums(world: World) -> None:
    a, b, c = await world.devices(3)
    items = [
        pb.Interaction(
            id=str(k), device_a=a, device_b=(b, c)[k % 2], positive=k != 3, duration_seconds=30, at=START - k
        )
        for k in range(6)
    ]
    await world.vouch(*items)
    await world.app.stop()
    changed = world.settings.model_copy(update={"trust_full_seconds": 30.0, "trust_halving_days": 0.0})
    other, channel = await open_world(changed, world.clock)
    matrix = await other.trust.GetMatrix(pb.GetMatrixRequest(device_ids=[a, b, c]))
    assert list(zip(matrix.rows, matrix.columns, strict=True)) == [(0, 1)]
    assert list(matrix.direct) == pytest.approx([3 / 8])
    explained = await other.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=a, device_b=c))
    assert (explained.direct, explained.positive_count) == (0.0, 2)
    await channel.close()
    await other.app.stop()
