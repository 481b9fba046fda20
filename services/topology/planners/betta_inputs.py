"""What a mesh is planned from: the task's parameters, who trusts whom, and how long links and batches take.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §III.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.parameters import ParameterGroup
from coterie.parameters.privacy import PartialPrivacy
from coterie.parameters.topology import MeshParameters
from coterie.records.enums import RelationKind
from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.trust.v1 import trust_pb2
from services.kit.rpc.enums import number
from services.kit.rpc.parameters import BadParameters, read, with_defaults
from services.kit.rpc.trust_matrix import Matrix, read_matrix
from services.topology.domain.betta_network import MeshNetwork, MeshRules
from services.topology.domain.mixing import Bools, Floats
from services.topology.errors import CannotPlan
from services.topology.planners.base import Sources, alone_of, parameters_of, strangers_of
from services.topology.store import links, plans

MOST_DEVICES = 512
"""A plan of this many devices is made in minutes; a round does not wait longer."""
LINK_BITS_PER_SECOND = {
    "wifi": 72.2e6,
    "lora": 37.5e3,
    "bluetooth": 2e6,
    "cellular": 20e6,
    "ethernet": 100e6,
}
"""Wi-Fi and LoRa as in [BETTA] §IV-A; the others are the usual rate of their kind."""
PAPER_BYTES = 42_000
"""A letter's size in [BETTA] §IV-A, where neither the task nor its model tells one."""
TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class MeshInputs:
    """Everything a mesh plan depends on.

    Attributes
    ----------
    ids, names : of the devices, in the order of rows.
    network : trust and times.
    rules : how to plan.
    settings : the task's parameters.
    """

    ids: tuple[str, ...]
    names: tuple[str, ...]
    network: MeshNetwork
    rules: MeshRules
    settings: MeshParameters

    @property
    def social(self) -> str:
        """What the social graph is made of, in words."""
        settings = self.settings
        trust, related = (
            f"trust of at least {settings.trust_threshold:g}",
            f"relations ({', '.join(settings.relations)})",
        )
        if not settings.relations:
            return trust
        if settings.trust_suffices:
            return f"{related} or {trust}"
        return f"{related} and {trust}" if settings.relations_need_trust else related

    @property
    def basis(self) -> str:
        """Fingerprint; equal inputs give equal plans."""
        digest = hashlib.sha256(repr((self.ids, self.rules, self.settings.plan)).encode())
        for part in (self.network.trusted, self.network.link_seconds, self.network.batch_seconds, self.network.samples):
            digest.update(b"" if part is None else np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:32]


async def gather_inputs(request: pb.MakePlanRequest, sources: Sources) -> MeshInputs:
    """Asks the registry and the store of measured links."""
    parameters = parameters_of(request)
    settings = read(MeshParameters, parameters)
    privacy = read(PartialPrivacy, parameters) if request.privacy == "partial" else PartialPrivacy()
    ids = [participant.device_id for participant in request.participants]
    if len(ids) > MOST_DEVICES:
        raise CannotPlan(f"a mesh has at most {MOST_DEVICES} devices, {len(ids)} take part; set the task's max_devices")
    devices = list((await sources.registry.GetDevices(trust_pb2.GetDevicesRequest(device_ids=ids))).devices)
    async with sources.database.reading() as tx:
        measured = await links.of_task(tx, request.task_id)
        first = await plans.find(tx, request.task_id, 1)
    trusted = await _social_graph(sources, devices, settings, first.created_at if first is not None else 0.0)
    for i, j in strangers_of(request.participants):
        trusted[i, j] = trusted[j, i] = False
    for i in alone_of(request.participants):
        trusted[i, :] = trusted[:, i] = False
    took = {pair: way.seconds for pair, way in measured.items()}
    seconds = link_seconds(devices, settings, took, request.model_bytes)
    if request.privacy == "none":
        # No device adds noise, so only trusted links may carry updates.
        seconds[~trusted] = np.inf
        np.fill_diagonal(seconds, 0.0)
    network = MeshNetwork.build(
        len(ids),
        [(int(i), int(j)) for i, j in np.argwhere(np.triu(trusted))],
        seconds,
        batch_seconds(devices, settings),
        samples=[max(1, participant.samples) for participant in request.participants],
    )
    rules = MeshRules(
        privacy.epsilon,
        settings.basic_batch,
        degree_cap(settings, len(ids)),
        settings.transfers,
        most_seconds(settings, request.round_seconds),
    )
    return MeshInputs(tuple(ids), tuple(d.name or d.id for d in devices), network, rules, settings)


def degree_cap(settings: MeshParameters, devices: int) -> int | None:
    """Links per device; "recommended" is ⌈log2 V⌉ + 1, without which (13) too often ends in the complete graph."""
    if settings.max_degree == "recommended":
        return (devices - 1).bit_length() + 1
    return settings.max_degree


def most_seconds(settings: MeshParameters, round_seconds: float) -> float | None:
    """How long a device may compute: what its wait for letters leaves of a round, so that one that says it is slow has
    no device miss the deadline. None where times are declared, which follow no real clock."""
    if settings.times == "declared" or not round_seconds:
        return None
    return (1.0 - settings.wait_share) * round_seconds


async def _social_graph(
    sources: Sources, devices: Sequence[trust_pb2.Device], settings: MeshParameters, planned_first_at: float
) -> Bools:
    """Who may exchange raw parameters: pairs that trust each other now and, unless told otherwise, already did when
    the task was first planned, so that taking part in a task does not by itself open its raw letters to strangers."""
    trusted = await _social_at(sources, devices, settings, 0.0)
    if planned_first_at and not settings.may_earn_trust:
        trusted &= await _social_at(sources, devices, settings, planned_first_at)
    if settings.same_owner_trusted:
        owners = np.array([device.owner_id for device in devices])
        trusted |= owners[:, None] == owners[None, :]
    np.fill_diagonal(trusted, False)
    return trusted


async def _social_at(
    sources: Sources, devices: Sequence[trust_pb2.Device], settings: MeshParameters, at: float
) -> Bools:
    """Pairs the task lets exchange raw: related as it says, trusting each other enough, one of both, or both."""
    ids = [device.id for device in devices]
    related = await _related_at(sources, ids, settings, at) if settings.relations else None
    if related is not None and not settings.relations_need_trust and not settings.trust_suffices:
        return related
    trusted = trusted_pairs(await read_matrix(sources.trust, ids, at=at), settings.trust_threshold)
    if related is None:
        return trusted
    return related | trusted if settings.trust_suffices else related & trusted


async def _related_at(sources: Sources, ids: list[str], settings: MeshParameters, at: float) -> Bools:
    kinds = [number(RelationKind(kind)) for kind in settings.relations]
    result = await sources.trust.GetRelated(trust_pb2.GetRelatedRequest(device_ids=ids, kinds=kinds, at=at))
    related = np.zeros((len(ids), len(ids)), dtype=bool)
    rows, columns = np.array(result.rows, dtype=np.int64), np.array(result.columns, dtype=np.int64)
    related[rows, columns] = related[columns, rows] = True
    return related


def trusted_pairs(matrix: Matrix, threshold: float) -> Bools:
    """Pairs whose combined trust reaches the threshold."""
    trusted = np.zeros((matrix.size, matrix.size), dtype=bool)
    enough = matrix.trust >= threshold - TOLERANCE
    rows, columns = matrix.rows[enough], matrix.columns[enough]
    trusted[rows, columns] = trusted[columns, rows] = True
    return trusted


def link_seconds(
    devices: Sequence[trust_pb2.Device],
    settings: MeshParameters,
    measured: Mapping[tuple[str, str], float],
    model_bytes: int,
) -> Floats:
    """Seconds of one message between each two devices: as both ends measured it, else by the slower end's link.

    A message has `message_bytes`, else the model's size. A device's rate is what it measured to the platform, else that
    of its link class, else of the default class. `measured` is by who tells it and of whom: of two ends the slower one
    is believed, and what one end says alone makes a link slower, never faster.
    """
    rates = np.array([_bits_per_second(device.capabilities, settings) for device in devices])
    seconds = (settings.message_bytes or model_bytes or PAPER_BYTES) * 8.0 / np.minimum.outer(rates, rates)
    if settings.times == "measured":
        rows, reported = {device.id: row for row, device in enumerate(devices)}, np.full_like(seconds, np.nan)
        for (reporter, other), value in measured.items():
            if reporter in rows and other in rows:
                reported[rows[reporter], rows[other]] = value
        slower = np.fmax(reported, reported.T)
        seconds = np.where(np.isnan(reported + reported.T), np.fmax(seconds, slower), slower)
    np.fill_diagonal(seconds, 0.0)
    return np.asarray(seconds, dtype=np.float64)


def batch_seconds(devices: Sequence[trust_pb2.Device], settings: MeshParameters) -> Floats:
    """Seconds each device takes for a basic batch."""
    per_sample = [d.capabilities.seconds_per_sample or settings.default_seconds_per_sample for d in devices]
    return np.array(per_sample, dtype=np.float64) * settings.basic_batch


def _bits_per_second(capabilities: trust_pb2.Capabilities, settings: MeshParameters) -> float:
    if capabilities.seconds_per_megabyte > 0:
        return 8e6 / capabilities.seconds_per_megabyte
    return LINK_BITS_PER_SECOND.get(capabilities.link_class, LINK_BITS_PER_SECOND[settings.default_link_class])


def checked_parameters(privacy: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters with every default of mesh and partial privacy filled in."""
    noise: list[type[ParameterGroup]] = [PartialPrivacy] if privacy == "partial" else []
    filled = with_defaults(parameters, MeshParameters, *noise)
    settings = read(MeshParameters, filled)
    if settings.trust_suffices and (settings.relations_need_trust or not settings.relations):
        raise BadParameters(
            "parameters.topology.trust_suffices: it lets devices exchange that are related or trust each other; name "
            "relations, and set relations_need_trust to false"
        )
    return filled
