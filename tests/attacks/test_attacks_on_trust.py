"""Attacks on trust: each attempt on a running platform, and the honest path beside it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from coterie_api.enums.v1 import enums_pb2
from coterie_api.trust.v1 import trust_pb2 as pb
from services.kit.errors import PermissionDenied
from services.kit.rpc.principal import SERVICE, Principal, acting_as, set_principal
from services.trust.domain.parameters import DAY_SECONDS
from services.trust.settings import TrustSettings
from tests.contract.trust.conftest import START, Hand, World, open_world
from tests.golden.trust.head_choice import choose_head

THRESHOLD = 0.7
"""α_th: from here on a device sends its head raw updates."""
HOURS = 3_600.0
TWELVE = [START - 4 * HOURS * (k + 1) for k in range(12)]
"""Twelve meetings in two days."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A real registry over gRPC, with a clock that the test sets."""
    set_principal(SERVICE)
    result, channel = await open_world(TrustSettings(data_dir=tmp_path, drain_seconds=1, insecure=True), Hand())
    yield result
    set_principal(SERVICE)
    await channel.close()
    await result.app.stop()


async def people(world: World, count: int) -> list[str]:
    """Devices of `count` different owners."""
    return [(await world.devices(1, owner=f"owner {k}"))[0] for k in range(count)]


def report(name: str, a: str, b: str, *, good: bool, at: float = START, seconds: float = 600.0) -> pb.Interaction:
    return pb.Interaction(
        id=name, device_a=a, device_b=b, positive=good, duration_seconds=seconds, at=at, kind="meeting"
    )


async def says(world: World, device: str, *reports: pb.Interaction) -> pb.RecordInteractionsReply:
    """Record reports of one device in its own name."""
    with acting_as(Principal("device", device)):
        return await world.trust.RecordInteractions(pb.RecordInteractionsRequest(interactions=reports))


async def witnessed(world: World, a: str, b: str, *at: float, good: bool = True) -> None:
    """Record rounds that the platform witnessed."""
    rounds = [report(f"tsk_{a[-6:]}{b[-6:]}.{k}", a, b, good=good, at=moment) for k, moment in enumerate(at)]
    await world.trust.RecordInteractions(pb.RecordInteractionsRequest(interactions=rounds))


async def trust(world: World, a: str, b: str) -> float:
    return (await world.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=a, device_b=b))).trust


async def head_of(world: World, *devices: str) -> str:
    """The head that these devices elect by the trust the platform reports."""
    direct, trust = np.zeros((2, len(devices), len(devices)))
    for a, b in itertools.permutations(range(len(devices)), 2):
        explained = await world.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=devices[a], device_b=devices[b]))
        direct[a, b], trust[a, b] = explained.direct, explained.trust
    return devices[choose_head(direct, trust, range(len(devices)))]


async def test_a_strangers_twelve_made_up_positives_make_it_nobodys_head(world: World) -> None:
    stranger, *friends = await people(world, 5)
    for other in friends:
        reply = await says(
            world, stranger, *(report(f"{other}{at}", stranger, other, good=True, at=at) for at in TWELVE)
        )
        assert (reply.recorded, reply.unconfirmed) == (12, 12)
    assert [await trust(world, other, stranger) for other in friends] == [0.0] * 4
    explanation = await world.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=friends[0], device_b=stranger))
    assert (explanation.unconfirmed_count, explanation.positive_count) == (12, 0)
    assert "12 good interactions count when the other end reports them too" in explanation.text
    listed = await world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=stranger))
    assert {item.state for item in listed.interactions} == {enums_pb2.INTERACTION_STATE_UNCONFIRMED}
    # The honest path: both ends report a real meeting.
    for other in friends[1:]:
        await world.meet(friends[0], other, *TWELVE)
    assert min([await trust(world, friends[0], other) for other in friends[1:]]) >= THRESHOLD
    assert await head_of(world, stranger, *friends) == friends[0]
    # Unconfirmed reports expire, and can no longer be confirmed.
    world.clock.time += 7 * DAY_SECONDS
    await says(world, friends[0], *(report(f"late{at}", stranger, friends[0], good=True, at=at) for at in TWELVE))
    assert await trust(world, friends[0], stranger) == 0.0
    listed = await world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=stranger))
    assert {item.state for item in listed.interactions} == {enums_pb2.INTERACTION_STATE_EXPIRED}


async def test_a_device_that_only_shows_up_is_never_trusted_with_raw_updates(world: World) -> None:
    """A thousand rounds of zeros lift trust to 0.5 at most."""
    lazy, honest, friend = await people(world, 3)
    await witnessed(world, lazy, honest, START)
    assert await trust(world, lazy, honest) == pytest.approx(1 / 6)
    await witnessed(world, honest, friend, *(START - 3 * HOURS * k for k in range(1_000)))
    many = await trust(world, honest, friend)
    assert 0.45 < many <= 0.5 < THRESHOLD
    # The honest path: devices that also meet reach the threshold, and rounds help.
    await world.meet(honest, friend, *TWELVE)
    assert await trust(world, honest, friend) >= THRESHOLD
    # Misconduct counts in full, whatever was witnessed before.
    await witnessed(world, friend, honest, *(START - HOURS * k for k in range(8)), good=False)
    assert await trust(world, honest, friend) <= many < THRESHOLD


async def test_eight_thousand_own_positives_do_not_drown_fifty_negatives(world: World) -> None:
    villain, victim, friend = await people(world, 3)
    await world.meet(villain, victim, *TWELVE)
    await world.meet(friend, victim, *TWELVE)
    assert await trust(world, villain, victim) >= THRESHOLD
    bad = [report(f"bad {k}", victim, villain, good=False, at=START - k) for k in range(50)]
    await says(world, victim, *bad)
    flood = [report(f"good {k}", villain, victim, good=True, at=START - 5.0 * k) for k in range(8_000)]
    await says(world, villain, *flood)
    # Bad reports of no length would dilute the bad ones, if there were no bound.
    await says(world, villain, *(report(f"thin {k}", villain, victim, good=False, seconds=0.0) for k in range(2_000)))
    assert await trust(world, villain, victim) == 0.0
    explanation = await world.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=victim, device_b=villain))
    assert explanation.negative_sum == pytest.approx(8.0, abs=0.01)  # of a day, eight count
    assert await trust(world, friend, victim) >= THRESHOLD


async def test_one_device_cannot_talk_down_more_than_a_day_takes(world: World) -> None:
    slanderer, *others = await people(world, 31)
    for other in others:
        await says(world, slanderer, *(report(f"{other}{k}", slanderer, other, good=False) for k in range(8)))
    listed = await world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=slanderer, limit=500))
    counted = [item for item in listed.interactions if item.state == enums_pb2.INTERACTION_STATE_COUNTED]
    assert len(counted) == 100
    assert {other for item in counted for other in (item.device_a, item.device_b)} - {slanderer} == set(others[-13:])
    audit = (await world.registry.ListAudit(pb.ListAuditRequest(act="evidence.surplus"))).entries
    assert audit
    assert {entry.object for entry in audit} == {slanderer}


async def test_own_bad_reports_cannot_fill_a_day_to_silence_a_victim(world: World) -> None:
    """A pair's day takes eight bad units: fill it, wait for the victim's to be left out, then displace one's own."""
    villain, victim, friend, *others = await people(world, 17)
    for other in (villain, friend):
        await world.meet(other, victim, *TWELVE)
    early = [report(f"own {k}", villain, victim, good=False, at=START - 1_000 - k) for k in range(8)]
    await says(world, villain, *early)
    reports = [report(f"bad {k}", victim, villain, good=False, at=START - 500 - k) for k in range(50)]
    await says(world, victim, *reports)
    full = await world.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=victim, device_b=villain))
    for other in others:  # 112 newer bad units about others leave no room for those about the victim
        await says(world, villain, *(report(f"{other}{k}", villain, other, good=False) for k in range(8)))
    now = await world.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=victim, device_b=villain))
    assert (full.trust, now.trust) == (0.0, 0.0)
    assert now.negative_sum == pytest.approx(full.negative_sum, rel=1e-3)  # as full as it was, by the victim's word
    listed = await world.trust.ListInteractions(
        pb.ListInteractionsRequest(device_a=villain, device_b=victim, limit=500)
    )
    counted = [
        item for item in listed.interactions if item.state == enums_pb2.INTERACTION_STATE_COUNTED and not item.positive
    ]
    assert {item.reporter for item in counted} == {victim}
    assert len(counted) == 8
    assert await trust(world, friend, victim) >= THRESHOLD  # the honest path: others' ties stand as they were


async def test_devices_of_an_owner_turned_bad_do_not_supply_clean_identities(world: World) -> None:
    (bad, spare, begun), (victim,) = await world.devices(3, owner="Mallory"), await world.devices(1, owner="Victim")
    (phone, laptop), (clean,) = await world.devices(2, owner="Honest"), await world.devices(1, owner="Clean")
    await says(world, begun, report("early", begun, victim, good=True))  # a pair that waits has not begun
    for day in range(3):
        at = START - day * DAY_SECONDS
        await says(world, victim, *(report(f"{day}-{k}", victim, bad, good=False, at=at - k) for k in range(20)))
    for device in (spare, begun, clean):
        await witnessed(world, device, victim, *(START - HOURS * k for k in range(8)))
        await world.meet(device, victim, *TWELVE)
    assert [await trust(world, device, victim) for device in (spare, begun)] == [0.0, 0.0]
    assert await trust(world, clean, victim) >= THRESHOLD
    # The honest path: a good record is not a debt, and one bad report does not turn it into a tie.
    await world.meet(phone, victim, *TWELVE)
    await says(world, laptop, report("bad", laptop, victim, good=False, seconds=1.0))
    assert await trust(world, laptop, victim) == 0.0
    await world.meet(laptop, victim, *TWELVE)
    assert await trust(world, laptop, victim) == pytest.approx(await trust(world, phone, victim), abs=0.05)


async def test_friendship_cannot_be_declared_for_the_other_side(world: World) -> None:
    (mallory,), (victim,) = await world.devices(1, owner="Mallory"), await world.devices(1, owner="Victim")
    reply = await world.registry.GetDevices(pb.GetDevicesRequest(device_ids=[mallory, victim]))
    hers, his = (device.owner_id for device in reply.devices)

    async def declare(device: str, own: str, other: str) -> pb.Relation:
        with acting_as(Principal("device", device, own)):
            return await world.trust.DeclareFriendship(
                pb.DeclareFriendshipRequest(owner_a=own, owner_b=other, strength=1.0)
            )

    assert not (await declare(mallory, hers, his)).confirmed
    with acting_as(Principal("device", mallory, hers)), pytest.raises(PermissionDenied):
        forged = pb.DeclareFriendshipRequest(owner_a=his, owner_b=hers, strength=1.0)
        await world.trust.DeclareFriendship(forged)
    assert not (await declare(mallory, hers, his)).confirmed  # repeating it confirms nothing
    assert await trust(world, mallory, victim) == 0.0
    relations = await world.trust.ListRelations(pb.ListRelationsRequest(device_id=victim))
    assert list(relations.relations) == []
    # The honest path: the other owner confirms.
    assert (await declare(victim, his, hers)).confirmed
    assert await trust(world, mallory, victim) == pytest.approx(0.8)


async def test_a_new_device_does_not_wash_its_owner_white(world: World) -> None:
    """The owner's record follows: bad in full, good halved."""
    (bad,), (victim,) = await world.devices(1, owner="Mallory"), await world.devices(1, owner="Victim")
    (honest,) = await world.devices(1, owner="Honest")
    await world.meet(honest, victim, *TWELVE)
    for day in range(3):
        at = START - day * DAY_SECONDS
        await says(world, victim, *(report(f"{day}-{k}", victim, bad, good=False, at=at - k) for k in range(20)))
    fresh, heir = [
        (await world.register(await world.token(await world.owner(name)), "new")).device.id
        for name in ("Mallory", "Honest")
    ]
    assert await trust(world, fresh, victim) == 0.0
    await witnessed(world, fresh, victim, *(START - HOURS * k for k in range(8)))
    await world.meet(fresh, victim, *TWELVE)
    assert await trust(world, fresh, victim) == 0.0  # 20 good against 2 · 24 bad of the owner
    (clean,) = await world.devices(1, owner="Clean")
    await witnessed(world, clean, victim, *(START - HOURS * k for k in range(8)))
    assert await trust(world, clean, victim) == pytest.approx(0.5, abs=0.01)  # without a record
    # The honest path: a new phone of an honest owner begins with half of what its owner earned.
    half = 12 / 2 * 2 ** (-1 / 30)  # about a day old
    assert await trust(world, heir, victim) == pytest.approx(half / (half + 5), abs=0.01)
    # What was handed down is not handed down again: the next device begins with no more.
    third = (await world.register(await world.token(await world.owner("Honest")), "third")).device.id
    assert await trust(world, third, victim) == pytest.approx(await trust(world, heir, victim), abs=1e-6)
    explanation = await world.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=heir, device_b=victim))
    assert (explanation.positive_count, "begins with their owners' record" in explanation.text) == (0, True)


@pytest.mark.parametrize("edges", [0, 1, 5])
async def test_sybils_get_no_more_than_their_real_edges_carry(world: World, edges: int) -> None:
    """60 % sybils of one attacker: trust flows only from a device's own direct ties."""
    honest, sybils = await people(world, 8), [(await world.devices(1, owner=f"sybil {k}"))[0] for k in range(12)]
    for k in range(8):
        await world.meet(honest[k], honest[(k + 1) % 8], *TWELVE)
    for k in range(12):
        await world.meet(sybils[k], sybils[(k + 1) % 12], *TWELVE)
        claims = [report(f"{other}{at}", sybils[k], other, good=True, at=at) for other in honest for at in TWELVE]
        assert (await says(world, sybils[k], *claims)).unconfirmed == len(claims)
    for k in range(edges):
        real = [report(f"real {at}", honest[k], sybils[k], good=True, at=at) for at in TWELVE]
        assert (await says(world, honest[k], *real)).unconfirmed == 0  # the other half of what the sybil claims
    result = await world.trust.GetMatrix(pb.GetMatrixRequest(device_ids=[*honest, *sybils]))
    across = [
        (row, column, value)
        for row, column, value in zip(result.rows, result.columns, result.trust, strict=True)
        if row < 8 <= column
    ]
    tied = {(row, column): value for row, column, value in across if value > 0.2}
    assert tied.keys() == {(k, 8 + k) for k in range(edges)}
    assert all(value < 0.75 for value in tied.values())  # what twelve confirmed meetings carry
    # All others trust sybils through those edges at most a fifth of what the path carries; none without edges.
    assert all(value <= 0.2 * 0.75 for row, column, value in across if (row, column) not in tied)
    assert bool(across) == bool(edges)
    inside = [value for row, column, value in zip(result.rows, result.columns, result.trust, strict=True) if column < 8]
    assert sum(value >= THRESHOLD for value in inside) == 8  # the honest ring stands as it was
