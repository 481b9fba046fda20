"""Attacks on updates work where they must, and fail where noise is due."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from coterie_lab.attacks import ATTACKS, TARGETS, Victims, inversion, label, likeness, membership, seen
from coterie_lab.canaries import MECHANISMS
from coterie_lab.experiments import ours_attacks
from coterie_lab.federations import small_mlp
from coterie_lab.images import DIGITS, ImageSet, image_set


@pytest.fixture(scope="module")
def digits() -> ImageSet:
    return image_set(DIGITS, None, 400, 200)


def test_a_raw_update_of_one_image_is_that_image_and_its_class(digits: ImageSet) -> None:
    for seed in range(3):
        assert inversion(digits, "raw", seed) > 0.99
        assert label(digits, "raw", seed) == 1.0


def test_noise_and_secure_sums_leave_the_attackers_nothing(digits: ImageSet) -> None:
    for target in ("noised", "secure sum of 12"):
        assert np.mean([inversion(digits, target, seed) for seed in range(3)]) < 0.6
        assert abs(np.mean([membership(digits, target, seed) for seed in range(12)]) - 0.5) < 0.15
    assert np.mean([membership(digits, "raw", seed) for seed in range(6)]) > 0.75


def test_a_sum_is_seen_as_the_mean_of_its_devices_changes(digits: ImageSet) -> None:
    module, victims = small_mlp(64), Victims.drawn(digits, 1, 0)
    result = seen(module, victims, "sum of 2", 0)
    mean = (victims.step(module, 0) + victims.step(module, 1)) / 2.0
    assert torch.allclose(result.change, mean, atol=1e-6)  # steps this short are within the clip norm


def test_likeness_knows_an_image_from_another_and_its_negative(digits: ImageSet) -> None:
    image, other = digits.train[0], digits.train[1]
    assert likeness([image * 3.0 + 1.0], image[None]) == pytest.approx(1.0, abs=1e-5)
    assert likeness([-image], image[None]) == pytest.approx(1.0, abs=1e-5)
    assert likeness([other], image[None]) < 0.99


def test_every_attack_target_and_mechanism_is_in_an_experiment() -> None:
    assert set(ours_attacks.TARGETS) == {*TARGETS, "guess"}
    assert set(ours_attacks.MECHANISMS) == set(MECHANISMS)
    names = {item.name for item in ours_attacks.EXPERIMENTS}
    assert names == {*(f"ours-{attack}" for attack in ATTACKS), "ours-audit"}
