"""The happy path over real processes: register, enrol, train, finish, and the same bits every time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load

from coterie.strategies.context import round_seed
from tests.e2e.device_group import NAMES, DeviceGroup
from tests.e2e.real_platform import SHAPES, RealPlatform

pytestmark = pytest.mark.smoke


def expected_model(names: tuple[str, ...], rounds: int, task: str) -> dict[str, NDArray[np.float64]]:
    """The average of the devices' seeded changes, worked out here in double precision."""
    model = {name: np.zeros(shape, np.float64) for name, shape in SHAPES.items()}
    for number in range(1, rounds + 1):
        for device in names:
            draw = np.random.default_rng(round_seed(7, task, number, device))
            for name in sorted(SHAPES):
                model[name] += draw.standard_normal(SHAPES[name]).astype(np.float32) / len(names)
    return model


def test_devices_train_together_and_model_is_average_of_their_changes(shared_platform: RealPlatform) -> None:
    device_group = DeviceGroup(shared_platform)
    task = device_group.publish()
    device_group.start(task).wait()
    final = load(shared_platform.final_model(task))
    for name, value in expected_model(NAMES, 3, "same").items():
        assert np.allclose(final[name], value, atol=1e-5)
    rounds = list(shared_platform.admin.rounds(task))
    assert [(r.number, r.state, r.delivered, r.attempt) for r in rounds] == [
        (number, "done", 3, 1) for number in (1, 2, 3)
    ]
    assert [model.version for model in shared_platform.admin.models(task)] == [0, 1, 2, 3]
