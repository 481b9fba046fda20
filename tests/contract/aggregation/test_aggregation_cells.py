"""Rounds of two cells over a real planner."""

from __future__ import annotations

import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.cellular import UPDATES, begun, messages_of, models_of, patient, play, put_cells
from tests.contract.aggregation.conftest import ServiceFixture

__all__ = ["patient"]


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_round_reports_update_dissimilarity_and_warns_from_a_quarter(
    service: ServiceFixture,
) -> None:
    """Model 0 gets (0.3, −0.1, 0.2) and (−0.4, 0.1, 0.3): their mean (−0.05, 0, 0.25) has the square 0.065 and each is
    0.135 away, ζ₂ ≤ 2.077. Model 1 gets the same update twice, ζ₂ = 0."""
    await put_cells(service)
    client, task = await begun(service)
    await play(client, {**UPDATES, "dev_d": UPDATES["dev_b"]})
    await models_of(client, task)
    set_principal(Principal("publisher", "pub_1"))
    metrics = (await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))).round.metrics
    assert metrics["dissimilarity[0]"] == pytest.approx(0.135 / 0.065, rel=1e-3)
    assert metrics["dissimilarity[1]"] == pytest.approx(0.0, abs=1e-6)
    # η(1 − 4ζ₂)‖∇F‖² with the usual rate 0.1 and one step: ‖∇F‖² = ‖U‖²/η².
    assert metrics["descent[0]"] == pytest.approx((1 - 4 * 0.135 / 0.065) * 0.065 / 0.1, rel=1e-3)
    assert metrics["noise_term[0]"] > 0.0
    warned = await messages_of(client, task, words.EVENT_KIND_ROUND_WARNED)
    assert warned[0].startswith("model 0: its updates are dissimilar by ζ₂ ≤ 2.08 ")
    assert not [message for message in warned if message.startswith("model 1: its updates are dissimilar")]
