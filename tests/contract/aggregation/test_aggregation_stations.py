"""Rounds whose updates base stations add up: the same bits as without them; a station that dies costs time alone."""

from __future__ import annotations

import numpy as np
import pytest

from coterie_api.words.v1 import words_pb2 as words
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
from tests.contract.aggregation.conftest import House

__all__ = ["patient"]

ADDED, LEFT_OUT = words.EVENT_KIND_STATION_ADDED, words.EVENT_KIND_STATION_LEFT_OUT


async def test_models_have_the_same_bits_with_stations_and_without(house: House) -> None:
    await put_cells(house)
    client, task = await begun(house)
    items = await play(client)
    assert {item.cell for item in items.values()} == {"hill", "town"}
    assert {item.station for item in items.values()} == {""}
    alone = await models_of(client, task)
    async with stations(house):
        client, task = await begun(house)
        items = await play(client)
        assert [items[device].station for device in sorted(UPDATES)] == ["hill", "hill", "town", "town"]
        together = await models_of(client, task)
        assert await told(client, task, ADDED) == [
            f"{cell}: its station added 1 update of model {line} up" for cell in ("hill", "town") for line in (0, 1)
        ]
    for mine, theirs in zip(alone, together, strict=True):
        assert mine.tobytes() == theirs.tobytes()
        assert not np.array_equal(mine, np.zeros(3, np.float32))


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_a_station_that_dies_during_a_round_costs_time_and_nothing_else(house: House) -> None:
    await put_cells(house)
    client, task = await begun(house)
    await play(client)
    alone = await models_of(client, task)
    async with stations(house, Mortal, StationApp) as (hill, _):
        client, task = await begun(house)
        items = await works(client)
        assert isinstance(hill, Mortal)
        await hill.die()
        await hand_in(client, items)
        models = await models_of(client, task)
        assert len(await told(client, task, LEFT_OUT)) == 2
        assert len(await told(client, task, ADDED)) == 2
    assert [model.tobytes() for model in models] == [model.tobytes() for model in alone]
