"""Clip norms that adapt, by real devices over a real platform, in secure sums."""

from __future__ import annotations

import secrets
from itertools import pairwise

import pytest

from coterie.privacy.adaptive import WITHIN, AdaptiveClip
from tests.e2e.neighbours import SECURE, NeighbourFixture
from tests.e2e.real_platform import RealPlatform


def test_clip_norm_follows_the_noised_count_and_each_round_charges_once(
    shared_platform: RealPlatform,
) -> None:
    neighbours = NeighbourFixture(shared_platform, f"a{secrets.token_hex(2)}-", 4)
    parameters = {"privacy": {"noise_multiplier": 2.0, "clip_quantile": 0.5}, "sums": SECURE}
    task = neighbours.publish(noise=2.0, parameters=parameters)
    neighbours.run(task)
    details = [shared_platform.admin.round(task, number).round.metrics for number in (1, 2)]
    assert details[0]["clip_norm"] == 1.0
    for before, after in pairwise(details):
        expected = AdaptiveClip(0.5).next(before["clip_norm"], before[WITHIN], 1.0)
        assert after["clip_norm"] == pytest.approx(expected, rel=1e-12)
        assert after["clip_norm"] != before["clip_norm"]
    for home in neighbours.homes.values():
        charges = [entry.charge for entry in home.ledger().history(task)]
        assert [(c.mechanism, c.multiplier, c.adjacency) for c in charges] == [("gaussian", 2.0, "left-out")] * 2
