"""Meshes planned from a real trust registry over real gRPC on both databases."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.topology.v1.topology_pb2_grpc import TopologyStub
from coterie_api.trust.v1 import trust_pb2
from services.kit.errors import InvalidInput, PermissionDenied
from services.kit.rpc.channels import open_channel
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import SERVICE, Principal, acting_as, set_principal
from services.kit.runtime.settings import ServiceSettings
from services.topology.app import App
from services.trust.settings import TrustSettings
from tests.contract.trust.conftest import Hand, Keypair, open_world
from tests.contract.trust.conftest import World as TrustWorld

MODEL_BYTES = 42_000


@dataclass
class Meshes:
    """A trust registry and a planner that asks it."""

    registry: TrustWorld
    topology: Any

    async def device(self, owner: str, name: str, link_class: str = "wifi", seconds_per_sample: float = 1.0) -> str:
        """A device of a new owner, with its link and speed."""
        token = await self.registry.token(await self.registry.owner(owner))
        pair = Keypair()
        device = pair.profile(name)
        device.capabilities.link_class = link_class
        device.capabilities.seconds_per_sample = seconds_per_sample
        request = trust_pb2.RegisterDeviceRequest(token=token, device=device, proof=pair.proof())
        return (await self.registry.registry.RegisterDevice(request)).device.id

    async def meet(self, a: str, b: str) -> None:
        """Enough good meetings that the two trust each other."""
        meetings = [
            trust_pb2.Interaction(
                id=f"{a}-{b}-{self.registry.clock.now()}-{n}",
                device_a=a,
                device_b=b,
                positive=True,
                duration_seconds=600.0,
                at=self.registry.clock.now() - n * 14_400.0,
                kind="meeting",
            )
            for n in range(20)
        ]
        await self.registry.vouch(*meetings)

    async def plan(
        self,
        devices: list[str],
        number: int = 1,
        privacy: str = "partial",
        strangers: dict[str, list[str]] | None = None,
        samples: int = 100,
        task: str = "tsk_1",
        round_seconds: float = 0.0,
        **topology: Any,
    ) -> pb.Plan:
        """The plan of a round; ε is so small that noise never pays."""
        request = pb.MakePlanRequest(
            task_id=task,
            key=f"{number}.1",
            topology="mesh",
            privacy=privacy,
            parameters=to_struct({"topology": topology, "privacy": {"epsilon": 0.01}}),
            participants=[
                pb.Participant(device_id=device, samples=samples, strangers=(strangers or {}).get(device, ()))
                for device in devices
            ],
            round=number,
            models=1,
            model_bytes=MODEL_BYTES,
            keep_if_stable=True,
            round_seconds=round_seconds,
        )
        # The first plan on a machine compiles the planner's loops; the aggregation server waits as long.
        plan: pb.Plan = await self.topology.MakePlan(request, timeout=300.0)
        return plan


@pytest.fixture
async def meshes(settings: ServiceSettings) -> AsyncIterator[Meshes]:
    set_principal(SERVICE)
    own = TrustSettings(data_dir=settings.data_dir, database_url=settings.database_url, drain_seconds=1, insecure=True)
    clock = Hand()
    clock.time = time.time()  # the planner's clock, which asks for trust as it was at a plan
    registry, trust_channel = await open_world(own, clock)
    planner = settings.model_copy(update={"trust_address": f"127.0.0.1:{registry.app.port}", "drain_seconds": 1.0})
    app = App(planner, "127.0.0.1:0")
    await app.start()
    channel = open_channel(planner, f"127.0.0.1:{app.server.port}")
    yield Meshes(registry, TopologyStub(channel))
    set_principal(SERVICE)
    for open_one in (channel, trust_channel):
        await open_one.close()
    await app.stop()
    await registry.app.stop()


def links(plan: pb.Plan) -> set[frozenset[str]]:
    return {
        frozenset((assignment.device_id, n.device_id)) for assignment in plan.assignments for n in assignment.neighbours
    }


async def three(meshes: Meshes) -> list[str]:
    """Ada's and Grace's phones trust each other, so do Grace's and Hedy's; Hedy's is on LoRa."""
    devices = [await meshes.device(*who) for who in (("Ada", "a"), ("Grace", "g"), ("Hedy", "h", "lora"))]
    await meshes.meet(devices[0], devices[1])
    await meshes.meet(devices[1], devices[2])
    return devices


async def test_trust_links_and_speeds_come_from_the_registry(meshes: Meshes) -> None:
    a, g, h = devices = await three(meshes)
    plan = await meshes.plan(devices, trust_threshold=0.7)
    assert links(plan) == {frozenset((a, g)), frozenset((g, h))}
    assignments = {assignment.device_id: assignment for assignment in plan.assignments}
    assert not any(assignment.noised for assignment in plan.assignments)
    assert [n.link_seconds for n in assignments[a].neighbours] == [pytest.approx(0.004654, abs=5e-7)]
    assert [n.link_seconds for n in assignments[h].neighbours] == [pytest.approx(8.96)]
    # shared transfers: 32 samples at 1 s and both of g's letters
    assert plan.round_seconds == pytest.approx(32.0 + 8.96 + 0.004654, abs=1e-5)
    assert plan.mesh_details.names == {a: "a", g: "g", h: "h"}


async def test_strangers_are_refused_by_name_or_bridged_with_noise(meshes: Meshes) -> None:
    a, g, h = devices = await three(meshes)
    stranger = await meshes.device("Mary", "m")
    with pytest.raises(InvalidInput, match=r"2 parts, \{a, g, h\}, \{m\}; trust between a–m would connect them"):
        await meshes.plan([*devices, stranger], trust_threshold=0.7)
    plan = await meshes.plan([*devices, stranger], number=2, trust_threshold=0.7, bridge=True)
    assert {assignment.device_id for assignment in plan.assignments if assignment.noised} == {a, stranger}
    with pytest.raises(InvalidInput, match="no possible link would connect them"):
        await meshes.plan([g, h, stranger], number=3, privacy="none", trust_threshold=0.7)


async def test_devices_whose_owners_do_not_know_each_other_exchange_nothing_raw(meshes: Meshes) -> None:
    a, g, _ = devices = await three(meshes)
    first = await meshes.plan(devices, trust_threshold=0.7)
    assert not any(assignment.noised for assignment in first.assignments)
    unknown = {a: [g], g: ["dev_gone"]}
    second = await meshes.plan(devices, number=2, strangers=unknown, trust_threshold=0.7)
    for assignment in second.assignments:
        for neighbour in assignment.neighbours:
            if {assignment.device_id, neighbour.device_id} == {a, g}:
                assert not neighbour.trusted
        assert assignment.noised == any(not neighbour.trusted for neighbour in assignment.neighbours)
    assert {assignment.device_id for assignment in second.assignments if assignment.noised} >= {a}
    with pytest.raises(InvalidInput, match="2 parts"):
        await meshes.plan(devices, number=3, privacy="none", strangers=unknown, trust_threshold=0.7)


async def test_measured_links_change_the_plan_when_they_change_enough(meshes: Meshes) -> None:
    a, g, h = devices = await three(meshes)
    await meshes.meet(a, h)
    first = await meshes.plan(devices, trust_threshold=0.7)
    assert (await meshes.plan(devices, number=2, trust_threshold=0.7)).version == first.version
    slow = pb.Link(device_a=a, device_b=g, seconds=500.0)
    await meshes.topology.ReportLinks(pb.ReportLinksRequest(task_id="tsk_1", links=[slow]))
    second = await meshes.plan(devices, number=3, trust_threshold=0.7)
    assert second.version > first.version
    assert links(second) == {frozenset((a, h)), frozenset((g, h))}
    with pytest.raises(InvalidInput):
        bad = pb.Link(device_a=a, device_b=g, seconds=-1.0)
        await meshes.topology.ReportLinks(pb.ReportLinksRequest(task_id="tsk_1", links=[bad]))


async def test_one_end_cannot_speed_up_a_link_or_revoke_the_other_ends_report(
    meshes: Meshes,
) -> None:
    """h, on LoRa, says that its links take a microsecond; a says so of the link that g finds slow."""
    a, g, h = devices = await three(meshes)
    await meshes.meet(a, h)

    async def tell(reporter: str, other: str, seconds: float) -> None:
        with acting_as(Principal("device", reporter)):
            link = pb.Link(device_a=other, device_b=reporter, seconds=seconds)
            await meshes.topology.ReportLinks(pb.ReportLinksRequest(task_id="tsk_1", links=[link]))

    first = await meshes.plan(devices)
    await tell(h, a, 1e-6)
    await tell(h, g, 1e-6)
    assert (await meshes.plan(devices, number=2)).version == first.version
    await tell(g, a, 500.0)
    slow = await meshes.plan(devices, number=3)
    assert links(slow) == {frozenset((a, h)), frozenset((g, h))}
    await tell(a, g, 1e-6)
    assert (await meshes.plan(devices, number=4)).version == slow.version
    await tell(a, h, 1e-3)  # and now both ends say so
    (believed,) = {n.link_seconds
                   for s in (await meshes.plan(devices, number=5, task="tsk_1", replan_gain=0.0)).assignments
                   for n in s.neighbours if {s.device_id, n.device_id} == {a, h}}  # fmt: skip
    assert believed == 1e-3
    with pytest.raises(InvalidInput, match="at most 1,000,000 s"):
        await tell(a, h, 1e300)


async def test_a_slow_device_makes_no_other_compute_beyond_the_round(meshes: Meshes) -> None:
    """Of 10 s half is left behind the wait for letters: 500 samples at 10 ms, though each holds 100,000."""
    quick = [await meshes.device(owner, owner, seconds_per_sample=0.01) for owner in ("Ada", "Grace")]
    liar = await meshes.device("Mallory", "m", seconds_per_sample=1e6)
    for a, b in ((quick[0], quick[1]), (quick[1], liar)):
        await meshes.meet(a, b)
    for number, name in enumerate(("betta",), 1):
        made = await meshes.plan([*quick, liar], number, plan=name, samples=100_000, round_seconds=10.0, task=name)
        assert [assignment.batch_size for assignment in made.assignments if assignment.device_id in quick] == [500, 500]


async def test_batches_follow_what_has_arrived_and_the_links_stay(meshes: Meshes) -> None:
    """Ten samples each at first; then a hundred, of which the quick two get through more than the basic batch."""
    devices = [await meshes.device(owner, owner, seconds_per_sample=pace) for owner, pace in
               (("Ada", 0.5), ("Grace", 0.5), ("Hedy", 1.0))]  # fmt: skip
    for a, b in ((0, 1), (1, 2), (0, 2)):
        await meshes.meet(devices[a], devices[b])
    first = await meshes.plan(devices, samples=10)
    second = await meshes.plan(devices, number=2, samples=100)
    assert {assignment.batch_size for assignment in first.assignments} == {10}
    assert [assignment.batch_size for assignment in second.assignments] == [64, 64, 32]
    assert links(second) == links(first)
    assert (await meshes.plan(devices, number=3, samples=105)).version == second.version


async def test_changed_device_changes_its_own_links_and_no_others(meshes: Meshes) -> None:
    names = ("Ada", "Grace", "Hedy", "Mary", "Joan")
    a, g, h, m, j = devices = [await meshes.device(name, name) for name in names]
    pairs = [(x, y) for number, x in enumerate(devices) for y in devices[number + 1 :]]
    for x, y in pairs:
        await meshes.meet(x, y)
    options: dict[str, Any] = {"replan_gain": 0.9, "max_degree": 3}
    first = await meshes.plan(devices, **options)
    second = await meshes.plan([a, g, h, m], number=2, **options)
    held = {link for link in links(first) if j not in link}
    assert held <= links(second)
    third = await meshes.plan(devices, number=3, **options)
    assert links(second) <= links(third)
    assert any(j in link for link in links(third))
    one, other = min(sorted(link) for link in links(third))
    bad = [
        trust_pb2.Interaction(
            id=f"bad{n}", device_a=one, device_b=other, duration_seconds=600.0, at=meshes.registry.clock.now() - n
        )
        for n in range(8)
    ]
    await meshes.registry.vouch(*bad)
    fourth = await meshes.plan(devices, number=4, **options)
    assert links(third) - links(fourth) == {frozenset((one, other))}
    assert not any(assignment.noised for assignment in fourth.assignments)


async def test_a_device_tells_so_many_links_and_no_more_and_each_once(
    meshes: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.topology.usecases.links.MAX_LINKS", 20)
    a, g, _ = await three(meshes)

    async def tell(*links: pb.Link) -> None:
        with acting_as(Principal("device", a)):
            await meshes.topology.ReportLinks(pb.ReportLinksRequest(task_id="tsk_1", links=links))

    made_up = [pb.Link(device_a=a, device_b=f"dev_{k}", seconds=1.0) for k in range(20)]
    await tell(*made_up)
    with pytest.raises(InvalidInput, match="those of your plan alone"):
        await tell(pb.Link(device_a=a, device_b=g, seconds=1.0))
    await tell(*made_up[:2], pb.Link(device_a="dev_1", device_b=a, seconds=2.0))  # both ways round in one batch
    with acting_as(Principal("device", g)):
        own_link = pb.Link(device_a=g, device_b="dev_x", seconds=1.0)
        await meshes.topology.ReportLinks(pb.ReportLinksRequest(task_id="tsk_1", links=[own_link]))


async def test_trust_earned_inside_a_task_opens_no_raw_link_in_it_unless_asked(meshes: Meshes) -> None:
    a, g, h = devices = await three(meshes)
    first = await meshes.plan(devices, trust_threshold=0.7)
    meshes.registry.clock.time = first.created_at + 4 * 86_400.0  # trust takes days to earn
    await meshes.meet(a, h)
    meshes.registry.clock.time += 60.0
    retained = await meshes.plan(devices, number=2, trust_threshold=0.7)
    assert links(retained) == {frozenset((a, g)), frozenset((g, h))}
    earned = await meshes.plan(devices, number=3, trust_threshold=0.7, may_earn_trust=True, replan_gain=0.0)
    assert earned.mesh_details.baselines["social"].noised == 0.0
    assert frozenset((a, h)) in links(earned)


async def befriend(meshes: Meshes, a: str, b: str) -> None:
    """The owners of two devices declare friendship of strength 0.5."""
    result = (await meshes.registry.registry.GetDevices(trust_pb2.GetDevicesRequest(device_ids=[a, b]))).devices
    owners = [device.owner_id for device in result]
    asked = trust_pb2.DeclareFriendshipRequest(owner_a=owners[0], owner_b=owners[1], strength=0.5)
    await meshes.registry.trust.DeclareFriendship(asked)


async def test_social_graph_has_the_relations_the_task_names(meshes: Meshes) -> None:
    """a and g trust each other, g and h are friends too, a and h are friends without having met."""
    a, g, h = devices = await three(meshes)
    await befriend(meshes, g, h)
    await befriend(meshes, a, h)
    both: dict[str, Any] = {"relations": ["friendship", "co-work"], "trust_threshold": 0.7, "plan": "social"}
    with pytest.raises(InvalidInput, match="2 parts"):  # g–h alone is related and trusted
        await meshes.plan(devices, **both)
    related = await meshes.plan(devices, number=2, **both, relations_need_trust=False)
    assert links(related) == {frozenset((g, h)), frozenset((a, h))}
    assert not any(assignment.noised for assignment in related.assignments)
    with pytest.raises(InvalidInput, match="3 parts"):
        await meshes.plan(devices, number=3, plan="social", relations=["parental"], may_earn_trust=True, privacy="none")
    # Friendship declared after the first plan opens no raw link in the running task.
    meshes.registry.clock.time = related.created_at + 60.0
    await befriend(meshes, a, g)
    again = await meshes.plan(devices, number=4, **both, relations_need_trust=False)
    assert links(again) == links(related)
    earned = await meshes.plan(devices, number=5, **both, relations_need_trust=False, may_earn_trust=True)
    assert links(earned) == {frozenset((g, h)), frozenset((a, h)), frozenset((a, g))}


async def related_in_every_way(meshes: Meshes) -> tuple[str, dict[str, str]]:
    """A phone, and for each kind of relation a device that it is related to in that way alone."""
    registry = meshes.registry
    ada = await registry.owner("Ada")

    async def make(owner: str, name: str, **profile: Any) -> str:
        pair = Keypair()
        device = pair.profile(name)
        for field, value in profile.items():
            setattr(device, field, value)
        token = await registry.token(owner)
        request = trust_pb2.RegisterDeviceRequest(token=token, device=device, proof=pair.proof())
        return (await registry.registry.RegisterDevice(request)).device.id

    async def meet(a: str, b: str, times: int, seconds: float, kind: str = "meeting") -> None:
        since = registry.clock.now() - times * 28_800.0
        await registry.vouch(*(
            trust_pb2.Interaction(id=f"{b}{n}", device_a=a, device_b=b, positive=True, duration_seconds=seconds,
                                  at=since + n * 28_800.0, kind=kind)
            for n in range(times)
        ))  # fmt: skip

    phone = await make(ada, "phone", brand="Acme", model="X1")
    others = {"ownership": await make(ada, "tablet")}
    for kind in ("parental", "co-location", "co-work", "social", "friendship"):
        make_of = {"brand": "Acme", "model": "X1"} if kind == "parental" else {}
        others[kind] = await make(await registry.owner(kind), kind, **make_of)
    city = (await registry.registry.CreateOwner(trust_pb2.CreateOwnerRequest(name="City", public=True))).id
    others["social-public"] = await make(city, "bus")
    place = trust_pb2.Location(x_metres=5)
    lamp = trust_pb2.UpdateDeviceRequest(device_id=others["co-location"], location=place)
    await registry.registry.UpdateDevice(lamp)
    await meet(phone, others["co-location"], 14, 10.0)
    await meet(phone, others["social"], 3, 1_800.0)
    await meet(phone, others["social-public"], 3, 60.0)
    await befriend(meshes, phone, others["friendship"])
    work = [
        trust_pb2.Interaction(id=f"tsk_{n}.1.a.b", device_a=phone, device_b=others["co-work"], positive=True,
                              duration_seconds=60.0, at=registry.clock.now(), kind="delivered")
        for n in range(3)
    ]  # fmt: skip
    await registry.trust.RecordInteractions(trust_pb2.RecordInteractionsRequest(interactions=work))
    return phone, others


async def test_each_kind_of_relation_makes_its_own_social_graph(meshes: Meshes) -> None:
    phone, others = await related_in_every_way(meshes)
    alone: dict[str, Any] = {"relations_need_trust": False, "same_owner_trusted": False, "privacy": "none"}
    kinds = list(others)
    for kind, other in others.items():
        made = await meshes.plan([phone, other], relations=[kind], task=kind, **alone)
        assert links(made) == {frozenset((phone, other))}, kind
        rest = [item for item in kinds if item != kind]
        with pytest.raises(InvalidInput, match=r"leave 2 parts.*no possible link.*Name more \"relations\""):
            await meshes.plan([phone, other], relations=rest, task=f"not {kind}", **alone)
    star = await meshes.plan([phone, *others.values()], relations=kinds, task="all", plan="social", **alone)
    friends = frozenset((others["ownership"], others["friendship"]))  # of all devices of two owners
    assert links(star) == {frozenset((phone, other)) for other in others.values()} | {friends}


async def test_a_social_graph_of_devices_that_are_related_or_trust_each_other(meshes: Meshes) -> None:
    """a and g trust each other, g and h do, a and h are friends who never met: all three, none of both, or one kind."""
    a, g, h = devices = await three(meshes)
    await befriend(meshes, a, h)
    options: dict[str, Any] = {"relations": ["friendship"], "plan": "social", "relations_need_trust": False}
    either = await meshes.plan(devices, task="either", trust_suffices=True, **options)
    assert links(either) == {frozenset((a, g)), frozenset((g, h)), frozenset((a, h))}
    with pytest.raises(InvalidInput, match=r"relations \(friendship\) leave 2 parts.*being related between"):
        await meshes.plan(devices, task="related", **options)
    with pytest.raises(InvalidInput, match=r"relations \(friendship\) and trust of at least 0\.7 leave 3 parts"):
        await meshes.plan(devices, task="both", **options | {"relations_need_trust": True})


async def test_only_a_service_may_ask_who_is_related_to_whom(meshes: Meshes) -> None:
    a, g, _ = await three(meshes)
    set_principal(Principal("device", a))
    with pytest.raises(PermissionDenied):
        await meshes.registry.trust.GetRelated(trust_pb2.GetRelatedRequest(device_ids=[a, g]))
    set_principal(SERVICE)
