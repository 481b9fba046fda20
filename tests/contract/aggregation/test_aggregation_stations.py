"""Rounds whose updates base stations add up: the same bits as without them; a station that dies costs time alone."""

from __future__ import annotations

import numpy as np
import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.words.v1 import words_pb2 as words
from services.kit.caller import Caller, set_caller
from services.topology.commands import station
from services.topology.commands.station import StationApp
from tests.contract.aggregation.cellular import (
    UPDATES,
    Mortal,
    begun,
    hand_in,
    models_of,
    patient,
    play,
    put_cells,
    stations,
    told,
    works,
)
from tests.contract.aggregation.conftest import ServiceFixture

__all__ = ["patient"]

ADDED, LEFT_OUT = words.EVENT_KIND_STATION_ADDED, words.EVENT_KIND_STATION_LEFT_OUT


async def test_models_have_the_same_bits_with_stations_and_without(service: ServiceFixture) -> None:
    await put_cells(service)
    client, task = await begun(service)
    items = await play(client)
    assert {item.cell for item in items.values()} == {"hill", "town"}
    assert {item.station for item in items.values()} == {""}
    alone = await models_of(client, task)
    async with stations(service):
        client, task = await begun(service)
        items = await play(client)
        assert [items[device].station for device in sorted(UPDATES)] == ["hill", "hill", "town", "town"]
        together = await models_of(client, task)
        assert await told(client, task, ADDED) == [
            f"{cell}: its station added 1 update of model {line} up" for cell in ("hill", "town") for line in (0, 1)
        ]
        counted = [(event.cell, event.updates) for event in await client.events(task.id) if event.kind == ADDED]
        assert sorted(counted) == [("hill", 1), ("hill", 1), ("town", 1), ("town", 1)]
    for mine, theirs in zip(alone, together, strict=True):
        assert mine.tobytes() == theirs.tobytes()
        assert not np.array_equal(mine, np.zeros(3, np.float32))


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_updates_too_large_for_one_call_are_read_piece_by_piece(
    service: ServiceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 40 bytes at a time no file fits one call, with 200 the model does, and neither changes a bit."""
    await put_cells(service)
    client, task = await begun(service)
    await play(client)
    alone = await models_of(client, task)
    async with stations(service):
        for at_a_time in (40, 200):
            monkeypatch.setattr(station, "READ_BYTES", at_a_time)
            client, task = await begun(service)
            await play(client)
            assert [each.tobytes() for each in await models_of(client, task)] == [each.tobytes() for each in alone]
            assert len(await told(client, task, ADDED)) == 4


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_a_station_that_dies_during_a_round_costs_time_and_nothing_else(service: ServiceFixture) -> None:
    await put_cells(service)
    client, task = await begun(service)
    await play(client)
    alone = await models_of(client, task)
    async with stations(service, Mortal, StationApp) as (hill, _):
        client, task = await begun(service)
        items = await works(client)
        assert isinstance(hill, Mortal)
        await hill.die()
        await hand_in(client, items)
        models = await models_of(client, task)
        assert len(await told(client, task, LEFT_OUT)) == 2
        assert len(await told(client, task, ADDED)) == 2
    assert [model.tobytes() for model in models] == [model.tobytes() for model in alone]


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_a_round_tells_how_dissimilar_its_updates_are_and_warns_from_a_quarter_on(
    service: ServiceFixture,
) -> None:
    """Model 0 gets (0.3, −0.1, 0.2) and (−0.4, 0.1, 0.3): their mean (−0.05, 0, 0.25) has the square 0.065 and each is
    0.135 away, ζ₂ ≤ 2.077. Model 1 gets the same update twice, ζ₂ = 0."""
    await put_cells(service)
    client, task = await begun(service)
    await play(client, {**UPDATES, "dev_d": UPDATES["dev_b"]})
    await models_of(client, task)
    set_caller(Caller("publisher", "pub_1"))
    metrics = (await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))).round.metrics
    assert metrics["dissimilarity[0]"] == pytest.approx(0.135 / 0.065, rel=1e-3)
    assert metrics["dissimilarity[1]"] == pytest.approx(0.0, abs=1e-6)
    # η(1 − 4ζ₂)‖∇F‖² with the usual rate 0.1 and one step: ‖∇F‖² = ‖U‖²/η².
    assert metrics["descent[0]"] == pytest.approx((1 - 4 * 0.135 / 0.065) * 0.065 / 0.1, rel=1e-3)
    assert metrics["noise_term[0]"] > 0.0
    warned = await told(client, task, words.EVENT_KIND_ROUND_WARNED)
    assert warned[0].startswith("model 0: its updates are dissimilar by ζ₂ ≤ 2.08 ")
    assert not [message for message in warned if message.startswith("model 1: its updates are dissimilar")]
