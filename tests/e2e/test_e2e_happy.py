"""The happy path over real processes: register, enrol, train, finish, and the same bits every time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from coterie.procedures.context import round_seed
from tests.e2e.real_platform import SHAPES, RealPlatform

NAMES = ("ada", "bob", "eve")


def expected_model(names: tuple[str, ...], rounds: int, task: str) -> dict[str, NDArray[np.float64]]:
    """The average of the devices' seeded changes, worked out here in double precision."""
    model = {name: np.zeros(shape, np.float64) for name, shape in SHAPES.items()}
    for number in range(1, rounds + 1):
        for device in names:
            draw = np.random.default_rng(round_seed(7, task, number, device))
            for name in sorted(SHAPES):
                model[name] += draw.standard_normal(SHAPES[name]).astype(np.float32) / len(names)
    return model


def test_devices_train_together_and_the_model_is_the_average_of_their_changes(shared_platform: RealPlatform) -> None:
    shared_platform.register(*NAMES)
    task = shared_platform.create_task("happy", min_devices=3, auto_start=True)
    for name in NAMES:
        shared_platform.run_device(name, task)
    final = load(shared_platform.final_model(task))
    expected = expected_model(NAMES, 3, "happy")
    for name, value in expected.items():
        assert np.allclose(final[name], value, atol=1e-5)
    rounds = list(shared_platform.admin.rounds(task))
    assert [(r["number"], r["state"], r["delivered"], r["attempt"]) for r in rounds] == [
        (number, "done", 3, 1) for number in (1, 2, 3)
    ]
    models = list(shared_platform.admin.models(task))
    assert [each["version"] for each in models] == [0, 1, 2, 3]
    for name in NAMES:
        assert shared_platform.devices.pop(name).wait(30) == 0
