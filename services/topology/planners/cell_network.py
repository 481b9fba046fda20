"""Registered cells and devices as the scheduler's radio network. [DPVD]

Devices that have not chosen a model yet form a separate group, numbered K after the models 0..K−1, which every cell
serves, so data shares alone decide the first rounds. A cell reaches as far as its registered radius.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np

from coterie.parameters.topology import RadioParameters
from coterie_api.topology.v1 import topology_pb2 as pb
from services.topology.domain.cell_noise import NoiseWeights
from services.topology.domain.radio import Layout, Station, User
from services.topology.domain.scheduling import Cells, Floats, Reward

MOST_SCALE, MOST_REWARD = 400.0, 900.0
"""Reward units per objective unit, and largest cost of serving no device: below 1000, the least violation."""


def network(
    cells: Sequence[pb.Cell],
    users: Sequence[User],
    models: int,
    radio: RadioParameters,
    *,
    weights: NoiseWeights | None = None,
    fixed_penalty: bool = False,
) -> Cells:
    """The stations and devices, ready to be scheduled. A user's task is its model, or `models` while it has none."""
    layout = Layout(
        stations=tuple(_station(cell, models, radio) for cell in cells),
        users=tuple(users),
        tasks=models + 1,
        noise_density=radio.noise_density,
        payload_bits=radio.payload_bits,
        fading_decibels=radio.fading_decibels,
    )
    reward = Reward(
        scale=min(MOST_SCALE, MOST_REWARD / layout.tasks),
        noise=weights or NoiseWeights(),
        penalty="fixed" if fixed_penalty else "dynamic",
    )
    made = Cells.of(layout, reward)
    return dataclasses.replace(made, handled=made.handled & reached(cells, layout))


def reached(cells: Sequence[pb.Cell], layout: Layout) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """(station, device): the device stands within the cell's radius."""
    radii: Floats = np.array([cell.radius_metres for cell in cells])
    within: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = layout.distances() <= np.maximum(radii, 1.0)[:, None]
    return within


def layout_fingerprint(cells: Sequence[pb.Cell], models: int, radio: RadioParameters) -> str:
    """Digest of the layout of a policy: the registered cells, the number of models and the channel."""
    channel = [getattr(radio, name) for name in RadioParameters.parameters()]
    digest = hashlib.sha256(f"{models} models, {channel}".encode())
    for cell in cells:
        data = cell.SerializeToString(deterministic=True)
        digest.update(len(data).to_bytes(4, "big") + data)
    return digest.hexdigest()


def population(cells: Sequence[pb.Cell], users: int, models: int, rng: np.random.Generator) -> list[User]:
    """Devices to train with: uniform in the disc of a random cell, models in turn, 20 to 100 samples."""
    people = []
    for index in range(users):
        cell = cells[int(rng.integers(len(cells)))]
        distance, angle = cell.radius_metres * np.sqrt(rng.random()), 2 * np.pi * rng.random()
        x, y = cell.x_metres + distance * np.cos(angle), cell.y_metres + distance * np.sin(angle)
        people.append(User(float(x), float(y), index % models, int(rng.integers(20, 101))))
    return people


def _station(cell: pb.Cell, models: int, radio: RadioParameters) -> Station:
    handled = {model for model in cell.models if 0 <= model < models} if cell.models else set(range(models))
    return Station(
        x_metres=cell.x_metres,
        y_metres=cell.y_metres,
        tasks=frozenset(handled | {models}),
        interference_watts=(radio.interference_watts,) * cell.blocks,
        power_watts=cell.power_watts,
        bandwidth_hertz=cell.bandwidth_hertz,
        delay_limit_seconds=cell.delay_limit_seconds,
    )
