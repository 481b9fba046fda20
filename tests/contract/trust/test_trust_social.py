"""Interactions and trust over gRPC, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.trust.v1 import trust_pb2 as pb
from services.kit.errors import CoterieError, InvalidInput, NotFound, PermissionDenied, TooLarge
from services.kit.rpc.principal import SERVICE, set_principal
from services.trust.domain.parameters import DAY_SECONDS, LIVE, TrustParameters
from services.trust.domain.scores import Interaction, trust_matrix
from tests.contract.trust.conftest import START, World, open_world, speak_as
from tests.unit.trust.domain.evidence_by_hand import vouched_trust

PARAMETERS = TrustParameters()


def act(name: str, a: str, b: str, **fields: Any) -> pb.Interaction:
    """A good interaction of one minute by default."""
    values = {"positive": True, "duration_seconds": 60.0, "at": START, "kind": "delivered", **fields}
    return pb.Interaction(id=name, device_a=a, device_b=b, **values)


async def record(world: World, *items: pb.Interaction) -> tuple[int, int]:
    reply = await world.vouch(*items)
    return reply.recorded, reply.repeated_before


async def explain(world: World, a: str, b: str, at: float = 0.0) -> pb.TrustExplanation:
    return await world.trust.ExplainTrust(pb.ExplainTrustRequest(device_a=a, device_b=b, at=at))


async def refused(kind: type[CoterieError], reason: str, call: Any) -> CoterieError:
    with pytest.raises(kind) as caught:
        await call
    assert caught.value.reason == reason
    return caught.value


async def test_direct_trust_follows_the_formula_and_fades(world: World) -> None:
    """e = (w₁ + w₂ − ν w₃)/(K′ + κ) by hand: one full minute, half a minute, and a bad quarter, ν = 2, κ = 5."""
    a, b = await world.devices(2)
    items = [
        act("1", a, b),
        act("2", b, a, duration_seconds=30.0),
        act("3", a, b, duration_seconds=15.0, positive=False),
    ]
    assert await record(world, *items) == (3, 0)
    result = await explain(world, a, b)
    assert result.direct == pytest.approx((1 + 0.5 - 2 * 0.25) / (3 + 5))
    assert result.trust == result.direct == (await explain(world, b, a)).direct
    assert (result.positive_count, result.negative_count, result.last_at) == (2, 1, START)
    assert (result.positive_sum, result.negative_sum) == (1.5, 0.25)
    world.clock.time += 30 * DAY_SECONDS  # evidence halves in 30 days
    later = await explain(world, a, b)
    assert later.direct == pytest.approx((1 + 0.5 - 2 * 0.25) / 2 / (3 / 2 + 5))
    assert later.positive_sum == pytest.approx(0.75)
    assert "3 times, 2 well and 1 badly" in later.text
    assert [(hop.from_device, hop.to_device) for hop in later.path] == [(a, b)]


async def test_recording_is_idempotent_and_batches_match_single_reports(world: World) -> None:
    a, b, c = await world.devices(3)
    generator = np.random.default_rng(4)
    ends = [(a, b), (b, c), (a, c)]
    items = [
        act(
            str(k),
            *ends[int(generator.integers(3))],
            positive=bool(generator.random() < 0.8),
            duration_seconds=float(generator.uniform(0, 90)),
            at=START - float(generator.uniform(0, 1e7)),
        )
        for k in range(40)
    ]
    assert await record(world, *items[:25]) == (25, 0)
    assert await record(world, *items[20:30]) == (5, 5)
    for item in items[30:]:
        assert await record(world, item) == (1, 0)
    assert await record(world, *items) == (0, 40)
    direct = np.zeros((3, 3))
    order = [a, b, c]
    for i, j in ((0, 1), (1, 2), (0, 2)):
        history = [
            Interaction(item.positive, item.duration_seconds, item.at)
            for item in items
            if {item.device_a, item.device_b} == {order[i], order[j]}
        ]
        direct[i, j] = direct[j, i] = vouched_trust(history, START, PARAMETERS, LIVE)
    expected = trust_matrix(direct, PARAMETERS.direct_weight)
    result = await world.trust.GetMatrix(pb.GetMatrixRequest(device_ids=order))
    assert list(zip(result.rows, result.columns, strict=True)) == [
        (int(i), int(j)) for i, j in np.argwhere(np.triu(expected.trust, 1) > 0)
    ]
    assert result.direct == pytest.approx([direct[i, j] for i, j in zip(result.rows, result.columns, strict=True)])
    assert result.trust == pytest.approx(
        [expected.trust[i, j] for i, j in zip(result.rows, result.columns, strict=True)]
    )


async def test_task_chooses_its_weight_of_direct_trust_and_registry_applies_it(world: World) -> None:
    a, b, c = await world.devices(3)
    await record(world, act("1", a, b), act("2", b, c))
    own = await world.trust.GetMatrix(pb.GetMatrixRequest(device_ids=[a, c]))
    assert list(own.trust) == pytest.approx([0.2 / 36])
    assert (own.direct_weight, own.next_piece) == (0.8, 0)
    asked = await world.trust.GetMatrix(pb.GetMatrixRequest(device_ids=[a, c], direct_weight=0.5))
    assert list(asked.trust) == pytest.approx([0.5 / 36])
    assert asked.direct_weight == 0.5
    none = await world.trust.GetMatrix(pb.GetMatrixRequest(device_ids=[a, c], direct_weight=1.0))
    assert (list(none.trust), none.direct_weight) == ([], 1.0)
    for wrong in ({"direct_weight": 1.5}, {"direct_weight": math.nan}, {"piece": 3}, {"piece": -1}):
        request = pb.GetMatrixRequest(device_ids=[a, c], **wrong)
        await refused(InvalidInput, "invalid_field", world.trust.GetMatrix(request))


async def test_reports_that_come_together_are_each_counted_once(world: World) -> None:
    devices = await world.devices(4)
    pairs = [(devices[i], devices[j]) for i in range(4) for j in range(i)]
    batches = [[act(f"{k}", *pairs[k % 6]) for k in range(start, start + 30)] for start in (0, 10, 20, 0, 30)]
    counted = await asyncio.gather(*(record(world, *batch) for batch in batches))
    assert sum(new for new, _ in counted) == 60
    totals = [(await explain(world, *pair)).positive_count for pair in pairs]
    assert totals == [8] * 6  # the day takes no more, however many come


async def test_indirect_trust_multiplies_along_the_best_shortest_path(world: World) -> None:
    a, b, c, lonely = await world.devices(4)
    await record(world, act("1", a, b, duration_seconds=48), act("2", b, c, duration_seconds=30))
    result = await explain(world, a, c)
    assert result.direct == 0.0
    first, second = 0.8 / 6, 0.5 / 6  # 48 s and 30 s of one minute, over 1 + κ
    assert result.indirect == pytest.approx(first * second)
    assert result.trust == pytest.approx(0.2 * first * second)
    assert [(hop.from_device, hop.to_device) for hop in result.path] == [(a, b), (b, c)]
    assert [hop.direct for hop in result.path] == pytest.approx([first, second])
    assert "0.133 × 0.083" in result.text
    stranger = await explain(world, a, lonely)
    assert (stranger.trust, list(stranger.path)) == (0.0, [])
    peers = (await world.trust.ListPeers(pb.ListPeersRequest(device_id=a))).peers
    assert [peer.device_id for peer in peers] == [b, c]
    assert [peer.trust for peer in peers] == pytest.approx([first, 0.2 * first * second])


async def test_every_bad_item_is_named_by_its_index_and_nothing_is_recorded(world: World) -> None:
    a, b = await world.devices(2)
    batch = [
        act("good", a, b),
        act("unknown", a, "dev_" + "0" * 26),
        act("self", a, a),
        act("negative", a, b, duration_seconds=-1.0),
        act("nan", a, b, duration_seconds=math.nan),
        act("infinite", a, b, duration_seconds=math.inf),
        act("future", a, b, at=START + 301),
        act("no time", a, b, at=math.nan),
        act("good", a, b),
        act("", a, b),
        act("long" * 26, a, b),
        act("kind", a, b, kind="x" * 51),
        act("note", a, b, note="\x00"),
        act("reporter", a, b, reporter="platform"),
    ]
    error = await refused(InvalidInput, "invalid_interactions", record(world, *batch))
    assert error.details["indices"] == "1-12"
    assert "unknown device" in error.details["1"]
    assert "[2]" in error.message
    listed = await world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=a))
    assert list(listed.interactions) == []
    assert (await explain(world, a, b)).trust == 0.0
    forged = [act("1", a, b), act("2", a, b, reporter=a)]
    error = await refused(PermissionDenied, "foreign_interactions", record(world, *forged))
    assert error.details["indices"] == "1"


async def test_batches_have_one_to_ten_thousand_items(world: World) -> None:
    a, b = await world.devices(2)
    await refused(InvalidInput, "invalid_field", record(world))
    many = [act(str(k), a, b) for k in range(10_001)]
    await refused(TooLarge, "too_many", record(world, *many))
    bad = [act(str(k), a, b, duration_seconds=-1.0 if k % 2 else 1.0) for k in range(10_000)]
    error = await refused(InvalidInput, "invalid_interactions", record(world, *bad))
    assert error.message.startswith("5000 of 10000")
    assert error.details["indices"].startswith("1,3,5,")
    assert error.details["indices"].endswith("…")


async def test_a_time_within_the_allowed_skew_counts_as_now(world: World) -> None:
    a, b = await world.devices(2)
    await record(world, act("1", a, b, at=START + 299))
    assert (await explain(world, a, b)).direct == pytest.approx(1 / 6)
    (stored,) = (await world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=a))).interactions
    assert stored.at == START


async def test_a_device_reports_only_what_it_is_part_of_in_its_own_name(world: World) -> None:
    a, b, c = await world.devices(3)
    speak_as("device", a)
    error = await refused(
        PermissionDenied, "foreign_interactions", record(world, act("1", a, b), act("2", b, c), act("3", c, a))
    )
    assert error.details["indices"] == "1"
    await refused(PermissionDenied, "foreign_interactions", record(world, act("1", a, b, reporter=b)))
    assert await record(world, act("1", a, b)) == (1, 0)
    speak_as("device", b)
    assert await record(world, act("1", a, b, positive=False)) == (1, 0)  # both ends' reports are stored
    set_principal(SERVICE)
    listed = (await world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=a, device_b=b))).interactions
    assert [(item.reporter, item.positive) for item in listed] == [(b, False), (a, True)]
    speak_as("publisher", "pub_x")
    await refused(PermissionDenied, "not_allowed", record(world, act("2", a, b)))


async def test_interactions_page_latest_first(world: World) -> None:
    a, b, c = await world.devices(3)
    await record(world, *[act(str(k), a, (b, c)[k % 2], at=START - k) for k in range(5)])
    first = await world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=a, limit=3))
    rest = await world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=a, limit=3, cursor=first.next_cursor))
    assert [item.id for item in (*first.interactions, *rest.interactions)] == ["4", "3", "2", "1", "0"]
    pair = await world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=c, device_b=a))
    assert [item.id for item in pair.interactions] == ["3", "1"]


async def test_scores_of_the_past_know_nothing_of_what_came_later(world: World) -> None:
    a, b, c = await world.devices(3)
    await record(world, act("1", a, b, at=START - 2 * DAY_SECONDS), act("2", b, c, at=START - 5 * DAY_SECONDS))
    then = await explain(world, a, b, START - DAY_SECONDS)
    chain = await explain(world, a, c, START - DAY_SECONDS)
    await record(world, *[act(f"bad {k}", a, b, positive=False) for k in range(3)])
    assert (await explain(world, a, b)).direct == 0.0
    again = await explain(world, a, b, START - DAY_SECONDS)
    assert again.direct == pytest.approx(then.direct, rel=1e-12)
    assert (again.positive_count, again.negative_count) == (1, 0)
    assert (await explain(world, a, c, START - DAY_SECONDS)).indirect == pytest.approx(chain.indirect, rel=1e-12)
    assert (await explain(world, a, b, START - 3 * DAY_SECONDS)).direct == 0.0
    peers = await world.trust.ListPeers(pb.ListPeersRequest(device_id=a, at=START - DAY_SECONDS))
    assert [peer.device_id for peer in peers.peers] == [b, c]
    later = await explain(world, b, c, START + 25 * DAY_SECONDS)
    assert later.direct == pytest.approx(0.5 / 5.5)


async def test_history_and_losses_show_who_lost_trust_and_why(world: World) -> None:
    a, b, c = await world.devices(3)
    await record(world, *[act(f"good {k}", a, b, at=START - 100 + k) for k in range(10)])
    await record(world, act("fine", a, c, at=START - 50))
    bad = [act(f"bad {k}", a, b, at=START - 40 + k, positive=False, kind="rejected") for k in range(12)]
    await record(world, *bad)
    history = await world.trust.GetHistory(pb.GetHistoryRequest(device_a=b, device_b=a, points=101))
    points = history.points
    assert (points[0].at, points[-1].at, points[-1].count) == (START - 100, START, 16)
    assert points[50].direct == pytest.approx(8 / 13, abs=1e-3)  # eight of the ten count, of one day
    assert points[-1].direct == 0.0
    losses = (await world.trust.ListLosses(pb.ListLossesRequest(since=START - 100))).losses
    (loss,) = losses
    assert {loss.device_a, loss.device_b} == {a, b}
    assert loss.before == pytest.approx(8 / 13, abs=1e-3)
    assert loss.after == 0.0
    assert [item.id for item in loss.because] == [f"bad {k}" for k in range(11, 1, -1)]
    none = await world.trust.GetHistory(pb.GetHistoryRequest(device_a=b, device_b=c))
    assert list(none.points) == []


async def test_questions_that_make_no_sense_are_refused(world: World) -> None:
    a, b = await world.devices(2)
    trust = world.trust
    ghost = "dev_" + "0" * 26
    await refused(InvalidInput, "self_trust", explain(world, a, a))
    await refused(NotFound, "unknown_device", explain(world, a, ghost))
    await refused(NotFound, "unknown_device", explain(world, "\x00", a))
    await refused(InvalidInput, "invalid_field", explain(world, a, b, math.nan))
    await refused(InvalidInput, "invalid_field", explain(world, a, b, -1.0))
    await refused(InvalidInput, "self_trust", trust.GetHistory(pb.GetHistoryRequest(device_a=a, device_b=a)))
    few = pb.GetHistoryRequest(device_a=a, device_b=b, points=1)
    await refused(InvalidInput, "invalid_field", trust.GetHistory(few))
    twice = pb.GetMatrixRequest(device_ids=[a, a])
    await refused(InvalidInput, "invalid_field", trust.GetMatrix(twice))
    await refused(NotFound, "unknown_device", trust.ListPeers(pb.ListPeersRequest(device_id=ghost)))
    await refused(NotFound, "unknown_owner", trust.GetGraph(pb.GetGraphRequest(owner_id="own_x")))
    await refused(InvalidInput, "invalid_field", trust.GetGraph(pb.GetGraphRequest(least=2)))
    await refused(InvalidInput, "invalid_field", trust.ListLosses(pb.ListLossesRequest(since=-1)))
    unknown = pb.WhatIfRequest(solver="riches", input_json="{}")
    await refused(NotFound, "unknown_solver", trust.WhatIf(unknown))
    empty = await trust.GetMatrix(pb.GetMatrixRequest())
    assert list(empty.trust) == []


async def test_what_if_answers_over_the_wire(world: World) -> None:
    reply = await world.trust.WhatIf(pb.WhatIfRequest(solver="scores", input_json='{"direct": [[0, 0.5], [0.5, 0]]}'))
    assert '"trust": [[1.0, 0.5], [0.5, 1.0]]' in reply.output_json


async def test_the_graph_has_devices_ties_and_relations(world: World) -> None:
    a, b, idle = await world.devices(3)
    (c,) = await world.devices(1, owner="Bob")
    await record(world, act("1", a, b), act("2", b, c, duration_seconds=30))
    everything = await world.trust.GetGraph(pb.GetGraphRequest())
    assert [device.id for device in everything.devices] == [a, b, idle, c]
    assert [(tie.device_a, tie.device_b, tie.direct, list(tie.relations)) for tie in everything.ties] == [
        (a, b, 1 / 6, [words.RELATION_KIND_OWNERSHIP]),
        (b, c, 0.5 / 6, []),
    ]
    strong = await world.trust.GetGraph(pb.GetGraphRequest(least=0.1))
    assert len(strong.ties) == 1
    some = await world.trust.GetGraph(pb.GetGraphRequest(device_ids=[a, c]))
    assert ([device.id for device in some.devices], list(some.ties)) == ([a, c], [])
    bob = (await world.registry.GetDevice(pb.GetDeviceRequest(device_id=c))).owner_id
    owned = await world.trust.GetGraph(pb.GetGraphRequest(owner_id=bob))
    assert ([device.id for device in owned.devices], len(owned.ties)) == ([b, c], 1)


async def test_a_device_sees_its_own_ties_and_those_shared_with_it(world: World) -> None:
    (a,), (b,), (c,) = [await world.devices(1, owner=name) for name in ("Ada", "Bob", "Cem")]
    reply = await world.registry.GetDevices(pb.GetDevicesRequest(device_ids=[a, b, c]))
    owner = {device.id: device.owner_id for device in reply.devices}
    await record(world, act("1", a, b), act("2", b, c))

    async def ties_seen_by(device: str) -> list[tuple[str, str]]:
        speak_as("device", device, owner[device])
        graph = await world.trust.GetGraph(pb.GetGraphRequest())
        set_principal(SERVICE)
        strangers = [item for item in graph.devices if item.id != device]
        assert not any(item.signing_key or item.HasField("location") for item in strangers)
        return [(tie.device_a, tie.device_b) for tie in graph.ties]

    async def share(*devices: str, sharing: str) -> None:
        for device in devices:
            await world.registry.UpdateOwner(pb.UpdateOwnerRequest(owner_id=owner[device], sharing=sharing))

    assert await ties_seen_by(a) == [(a, b)]
    speak_as("device", a, owner[a])
    chain = await explain(world, a, c)
    assert [(hop.from_device, hop.to_device) for hop in chain.path] == [(a, b)]
    assert "1 of them not shared with you" in chain.text
    hidden = [
        explain(world, b, c),
        world.trust.GetHistory(pb.GetHistoryRequest(device_a=b, device_b=c)),
        world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=b, device_b=c)),
    ]
    for call in hidden:
        await refused(PermissionDenied, "hidden_tie", call)
    foreign = [
        world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=b)),
        world.trust.ListPeers(pb.ListPeersRequest(device_id=b)),
        world.trust.ListRelations(pb.ListRelationsRequest(device_id=b)),
        world.trust.ListLosses(pb.ListLossesRequest()),
        world.trust.GetMatrix(pb.GetMatrixRequest(device_ids=[a, b])),
        world.trust.DeriveRelations(pb.DeriveRelationsRequest()),
        world.trust.GetImport(pb.GetImportRequest(name="x")),
    ]
    for call in foreign:
        await refused(PermissionDenied, "not_allowed", call)
    set_principal(SERVICE)
    await share(b, sharing="all")
    assert await ties_seen_by(a) == [(a, b)]  # one owner alone cannot give the other's tie away
    await share(c, sharing="all")
    assert await ties_seen_by(a) == [(a, b), (b, c)]
    speak_as("publisher", "pub_x")
    public = await world.trust.GetGraph(pb.GetGraphRequest(device_ids=[a, b, c]))
    assert [(tie.device_a, tie.device_b) for tie in public.ties] == [(b, c)]
    await refused(PermissionDenied, "hidden_tie", explain(world, a, b))
    set_principal(SERVICE)
    await share(b, c, sharing="owners")
    assert await ties_seen_by(a) == [(a, b)]


async def test_every_admin_read_of_personal_ties_is_in_the_audit_log(world: World) -> None:
    a, b = await world.devices(2)
    await record(world, act("1", a, b))
    speak_as("admin", "adm_1")
    await explain(world, a, b)
    await world.trust.ListPeers(pb.ListPeersRequest(device_id=a))
    await world.trust.GetMatrix(pb.GetMatrixRequest(device_ids=[a, b]))
    await world.trust.GetGraph(pb.GetGraphRequest())
    await world.trust.GetHistory(pb.GetHistoryRequest(device_a=a, device_b=b))
    await world.trust.ListLosses(pb.ListLossesRequest())
    await world.trust.ListInteractions(pb.ListInteractionsRequest(device_a=a))
    await world.trust.ListRelations(pb.ListRelationsRequest(device_id=a))
    audit = await world.registry.ListAudit(pb.ListAuditRequest(act="trust.read", subject="adm_1"))
    assert [entry.note for entry in reversed(audit.entries)] == [
        "explain",
        "peers",
        "matrix",
        "graph",
        "history",
        "losses",
        "interactions",
        "relations",
    ]
    assert audit.entries[-1].object == f"{a},{b}"


async def test_two_registries_on_one_database_agree(world: World) -> None:
    a, b = await world.devices(2)
    await record(world, act("1", a, b))
    if world.settings.database_url:
        other, channel = await open_world(world.settings, world.clock)
        assert (await explain(other, a, b)).direct == pytest.approx(1 / 6)
        await record(other, act("2", a, b, positive=False))
        assert (await explain(world, a, b)).negative_count == 1
        await record(world, act("3", a, b))
        assert (await explain(other, a, b)).positive_count == 2
        await channel.close()
        await other.app.stop()
    else:
        await world.app.stop()
        other, channel = await open_world(world.settings, world.clock)
        assert (await explain(other, a, b)).direct == pytest.approx(1 / 6)
        await channel.close()
        await other.app.stop()
