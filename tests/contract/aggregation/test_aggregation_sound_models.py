"""What a task may start from: finite numbers, and no running statistics where noise is promised."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.kit.errors import InvalidInput
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture


async def registered(client: Client, tensors: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]) -> str:
    set_principal(Principal("publisher", "pub_1"))
    digest = await client.service.blobs.put_bytes(save(tensors))
    await client.tasks.RegisterModel(pb.RegisterModelRequest(digest=digest))
    return digest


@pytest.mark.parametrize("bad", [np.nan, np.inf])
async def test_a_model_that_is_not_finite_is_refused_when_it_is_uploaded(service: ServiceFixture, bad: float) -> None:
    client = await service.start()
    odd = np.ones(5, np.float32)
    odd[3] = bad
    with pytest.raises(InvalidInput, match=r"tensor 'bn\.running_var' holds NaN or infinity"):
        await registered(client, {"w": np.ones(3, np.float32), "bn.running_var": odd})


async def test_running_statistics_are_refused_under_privacy_with_what_to_do(service: ServiceFixture) -> None:
    client = await service.start()
    digest = await registered(client, {"w": np.ones(3, np.float32), "bn.running_mean": np.zeros(2, np.float32)})
    noise = to_struct({"privacy": {"noise_multiplier": 2.0}})
    specification = pb.TaskSpecification(
        name="noised", preset="fedavg", privacy="uniform", parameters=noise, model_digests=[digest], rounds=1
    )
    with pytest.raises(InvalidInput, match=r"running statistics \(bn\.running_mean\).*exchange=\"trainable\""):
        await client.tasks.CreateTask(pb.CreateTaskRequest(specification=specification))
    specification.privacy = "none"
    specification.ClearField("parameters")
    made = await client.tasks.CreateTask(pb.CreateTaskRequest(specification=specification))
    assert made.specification.model_digests == [digest]


async def test_impossible_training_is_refused_with_the_nearest_name(service: ServiceFixture) -> None:
    client = await service.start()
    digest = await registered(client, {"w": np.ones(3, np.float32)})
    for text, why in (('{"epoch": 3}', "did you mean 'epochs'"), ('{"epochs": -1}', "whole number at least 0")):
        wrong = pb.TaskSpecification(name="t", preset="fedavg", model_digests=[digest], rounds=1, training_json=text)
        with pytest.raises(InvalidInput, match=why):
            await client.tasks.CreateTask(pb.CreateTaskRequest(specification=wrong))
