"""Policies over real gRPC: trained in a separate process, resumed after a restart, refused for other layouts."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.parameters.topology import RadioParameters
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.errors import Conflict, InvalidInput, NotFound, PermissionDenied
from services.kit.rpc.principal import Principal, set_principal
from services.topology.domain.cell_checkpoints import read_meta
from services.topology.errors import PolicyNotUsable
from services.topology.planners.cell_network import layout_fingerprint
from tests.contract.topology.conftest import World

NONSENSE: list[dict[str, Any]] = [
    {"users": 0},
    {"models": 0},
    {"steps": -1},
    {"seed": -1},
    {"learner": 99},
    {"penalty": 99},
    {"network": 99},
    {"users": 10**6},
]


def asked(**changes: Any) -> pb.TrainPolicyRequest:
    values: dict[str, Any] = {"seed": 3, "steps": 20, "users": 6, "models": 2}
    return pb.TrainPolicyRequest(**(values | changes))


@pytest.mark.slow
async def test_policy_is_trained_in_background_and_fits_its_own_layout_alone(world: World) -> None:
    cell = await world.put_cell()
    assert await world.policies() == []
    begun = await world.topology.TrainPolicy(asked())
    assert begun.id.startswith("pol_")
    assert begun.state == words.POLICY_STATE_TRAINING
    await world.until(world.no_training)
    (policy,) = await world.policies()
    assert (policy.state, policy.reason, policy.progress) == (words.POLICY_STATE_READY, "", 1.0)
    assert policy.reward < 0.0
    assert policy.layout == layout_fingerprint([cell], 2, RadioParameters())
    tensors = await world.app.policies.ready(begun.id, layout_fingerprint([cell], 2, RadioParameters()))
    assert any(name.startswith("best.") for name in tensors)
    with pytest.raises(PolicyNotUsable, match="trained for layout"):
        await world.app.policies.ready(begun.id, layout_fingerprint([cell], 3, RadioParameters()))
    with pytest.raises(PolicyNotUsable, match="radio constants make"):
        await world.app.policies.ready(begun.id, layout_fingerprint([cell], 2, RadioParameters(payload_bits=1e6)))
    with pytest.raises(InvalidInput, match=r"radio\.payload_bits"):
        await world.topology.TrainPolicy(asked(radio={"payload_bits": -1}))
    other = await world.topology.TrainPolicy(asked(radio={"payload_bits": 1e6}))
    await world.until(world.no_training)
    assert await world.app.policies.ready(other.id, layout_fingerprint([cell], 2, RadioParameters(payload_bits=1e6)))
    cell.blocks = 5
    with pytest.raises(PolicyNotUsable, match="trained for layout"):
        await world.app.policies.ready(begun.id, layout_fingerprint([cell], 2, RadioParameters()))


@pytest.mark.slow
async def test_the_papers_learner_is_trained_by_api_beside_the_pointer(world: World) -> None:
    """Set network, independent learning and a fixed penalty are options of a request, and the policy reports them."""
    cell = await world.put_cell()
    asked_for = {
        "network": words.POLICY_NETWORK_SET,
        "learner": words.POLICY_LEARNER_IQL,
        "penalty": words.POLICY_PENALTY_FIXED,
    }
    begun = await world.topology.TrainPolicy(asked(**asked_for))
    assert {name: getattr(begun, name) for name in asked_for} == asked_for
    await world.until(world.no_training)
    (policy,) = await world.policies()
    assert (policy.state, policy.reason) == (words.POLICY_STATE_READY, "")
    tensors = await world.app.policies.ready(begun.id, layout_fingerprint([cell], 2, RadioParameters()))
    meta = read_meta(tensors)
    assert (meta["config"]["head"], meta["config"]["mixing"], meta["penalty"]) == ("set", "iql", "fixed")
    assert any(name.startswith("weights.whole") for name in tensors)
    with pytest.raises(InvalidInput, match="use the pointer network"):
        await world.topology.TrainPolicy(asked(network=words.POLICY_NETWORK_SET, users=48))


@pytest.mark.slow
async def test_a_restarted_planner_goes_on_with_an_unfinished_training(world: World) -> None:
    await world.put_cell()
    begun = await world.topology.TrainPolicy(asked(steps=150))

    async def under_way() -> bool:
        return (await world.policies())[0].progress > 0.0

    await world.until(under_way)
    await world.restart()
    (policy,) = await world.policies()
    assert policy.id == begun.id
    await world.until(world.no_training)
    (policy,) = await world.policies()
    assert (policy.state, policy.reason) == (words.POLICY_STATE_READY, "")


async def test_without_cells_there_is_nothing_to_train_for(world: World) -> None:
    with pytest.raises(Conflict, match="no cell is registered"):
        await world.topology.TrainPolicy(asked())


async def test_a_training_that_makes_no_sense_is_refused(world: World) -> None:
    await world.put_cell()
    for changes in NONSENSE:
        with pytest.raises(InvalidInput, match=next(iter(changes))):
            await world.topology.TrainPolicy(asked(**changes))
    assert await world.policies() == []


async def test_only_admins_train_and_devices_see_nothing(world: World) -> None:
    await world.put_cell()
    set_principal(Principal("publisher", "key_1", ""))
    with pytest.raises(PermissionDenied):
        await world.topology.TrainPolicy(asked())
    assert await world.policies() == []
    set_principal(Principal("device", "dev_1", "own_1"))
    with pytest.raises(PermissionDenied):
        await world.policies()


async def test_an_unknown_or_unfinished_policy_is_not_handed_out(world: World) -> None:
    await world.put_cell()
    with pytest.raises(NotFound, match="no policy"):
        await world.app.policies.ready("pol_none", "")
    begun = await world.topology.TrainPolicy(asked(steps=5000))
    with pytest.raises(PolicyNotUsable, match="is training"):
        await world.app.policies.ready(begun.id, begun.layout)
