"""Simulated federations: who gets which images, what leaves a device, and how changes combine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from coterie_lab import federations as fed
from coterie_lab.cohorts import Lesson, changes, parameters_of
from coterie_lab.images import DIGITS, ImageSet, image_set
from coterie_lab.paces import Clock
from services.aggregation.domain.buffering import Buffering


@pytest.fixture(scope="module")
def digits() -> ImageSet:
    return image_set(DIGITS, None, 400, 200)


def test_even_shares_hold_every_image_once_and_uneven_ones_few_classes(digits: ImageSet) -> None:
    even = fed.dealt(digits, None, 8, np.random.default_rng(0))
    assert sorted(even.shares.ravel().tolist()) == list(range(400))
    uneven = fed.dealt(digits, np.full(8, 0.05), 8, np.random.default_rng(0))
    kinds = [len(set(digits.train_labels[row].tolist())) for row in uneven.shares]
    assert uneven.shares.shape == (8, 50)
    assert np.mean(kinds) < 5


def test_federations_repeat_from_a_seed_and_leave_their_module_unchanged(digits: ImageSet) -> None:
    cohort = fed.dealt(digits, None, 10, np.random.default_rng(0))
    federation = fed.Federation(digits, cohort, fed.small_mlp(64), Lesson(0.2, 8, epochs=2))
    first = parameters_of(federation.module)
    one, two = (federation.learn(6, 3, fed.clear_mean(np.ones(10))) for _ in range(2))
    assert one == two
    assert torch.equal(first, parameters_of(federation.module))
    assert one[-1].accuracy > 0.75
    assert one[-1].loss < one[0].loss


def test_private_mean_without_noise_is_weighed_mean_of_clipped_changes(digits: ImageSet) -> None:
    cohort = fed.dealt(digits, None, 4, np.random.default_rng(0))
    federation = fed.Federation(digits, cohort, fed.small_mlp(64), Lesson(0.2, 8))
    rows = torch.cat(
        list(changes(federation.module, parameters_of(federation.module), cohort, federation.lesson, 1, "stacked"))
    )
    weights, bound = np.array([1.0, 2.0, 3.0, 4.0]), float(rows.norm(dim=1).median())
    result = fed.private_mean(np.zeros(4), weights, bound, 0)(0, iter([rows]))
    clipped = rows * (bound / rows.norm(dim=1, keepdim=True)).clamp(max=1.0)
    assert torch.allclose(result, torch.from_numpy(weights).float() @ clipped / 10.0, atol=1e-6)


def test_noise_on_change_has_deviation_asked_for_and_repeats_with_its_seed() -> None:
    change = torch.zeros(20_000)
    one, again, other = (fed.released(change, 0.5, 0.6, seed) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert one.std() == pytest.approx(0.3, rel=0.03)


def test_rounds_wait_for_the_slowest_and_buffers_do_not(digits: ImageSet) -> None:
    """Devices of 1, 1, 1 and 10 s: two rounds in 20 s; a buffer of two steps first at 1 s, and holds only who came."""
    cohort = fed.dealt(digits, None, 4, np.random.default_rng(0))
    seconds = np.array([1.0, 1.0, 1.0, 10.0])

    def clock() -> Clock:
        return Clock(fed.Federation(digits, cohort, fed.small_mlp(64), Lesson(0.2, 8)), seconds, 0)

    assert [time for time, _ in clock().synchronous(20.0)] == [10.0, 20.0]
    buffered = [time for time, _ in clock().buffered(Buffering(2), 10.0)]
    assert buffered[0] == 1.0
    assert len(buffered) >= 8
    steps = list(clock().buffered(Buffering(4), 20.0))
    assert steps == list(clock().synchronous(20.0))  # a buffer of all, none of them stale, is a round
