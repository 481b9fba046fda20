"""Tasks that say what all their rounds may cost: the platform chooses the noise, and plan and work hold it."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.privacy.lifetime import Lifetime, multiplier_for
from services.kit.errors import InvalidInput
from services.kit.rpc.parameters import from_struct, to_struct
from tests.contract.aggregation.conftest import ServiceFixture


def aimed(**privacy: float) -> dict[str, Any]:
    return {"privacy": "uniform", "rounds": 50, "parameters": to_struct({"privacy": privacy})}


async def test_a_target_chooses_the_noise_of_every_round(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(["dev_a"], **aimed(target_epsilon=4.0, delta=1e-5))
    parameters = from_struct(task.specification.parameters)
    assert parameters["privacy"]["noise_multiplier"] == multiplier_for(4.0, 1e-5, 50)
    lifetime = Lifetime.of(parameters, task.specification.rounds)
    assert lifetime is not None
    assert 3.999 < lifetime.epsilon <= 4.0
    await client.start_task(task.id)
    item = await client.get_work("dev_a", 30.0)
    assert item.noise_multiplier == parameters["privacy"]["noise_multiplier"]


async def test_the_whole_specification_again_is_the_same_task(service: ServiceFixture) -> None:
    client = await service.start()
    first = await client.create([], **aimed(target_epsilon=2.0))
    assert from_struct(first.specification.parameters)["privacy"]["delta"] == 1e-5
    again = await client.create([], **aimed(**from_struct(first.specification.parameters)["privacy"]))
    assert again.id == first.id


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (aimed(target_epsilon=4.0, epsilon=1.0), "give one of them"),
        (aimed(target_epsilon=4.0, noise_multiplier=7.0), "leave noise_multiplier out"),
        (aimed(target_epsilon=-1.0), "above 0"),
        (aimed(target_epsilon=1e-4), "fewer rounds or a larger target_epsilon"),
        (aimed(target_epsilon=4.0) | {"privacy": "none"}, "privacy none takes none"),
    ],
)
async def test_a_target_that_cannot_be_kept_is_refused_with_what_to_do(
    service: ServiceFixture, changes: dict[str, Any], word: str
) -> None:
    client = await service.start()
    with pytest.raises(InvalidInput, match=word):
        await client.create([], **changes)
