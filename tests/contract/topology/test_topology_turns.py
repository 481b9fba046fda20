"""Plans asked for by several replicas at the same moment: one answer, and no fault."""

from __future__ import annotations

import asyncio

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from tests.contract.topology.conftest import World


async def ask(world: World, key: str, devices: tuple[str, ...] = ("dev_a", "dev_b", "dev_c")) -> pb.Plan:
    return await world.topology.MakePlan(
        pb.MakePlanRequest(
            task_id="tsk_1",
            key=key,
            topology="star",
            privacy="none",
            participants=[pb.Participant(device_id=device, samples=5, model_index=-1) for device in devices],
            round=1,
            models=1,
            privacy_unit=words.PRIVACY_UNIT_DEVICE,
        )
    )


async def test_replicas_that_ask_for_the_same_plan_at_once_get_the_same(world: World) -> None:
    made = await asyncio.gather(*(ask(world, "1.1") for _ in range(24)))
    assert {plan.version for plan in made} == {1}
    assert {plan.SerializeToString(deterministic=True) for plan in made} == {
        made[0].SerializeToString(deterministic=True)
    }


async def test_plans_of_different_rounds_made_at_once_get_versions_in_a_row(world: World) -> None:
    made = await asyncio.gather(*(ask(world, f"{n}.1", tuple(f"dev_{i}" for i in range(n))) for n in range(1, 13)))
    assert sorted(plan.version for plan in made) == list(range(1, 13))
