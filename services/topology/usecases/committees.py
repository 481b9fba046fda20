"""Committees of clerks for secure sums, chosen by the trust the registry knows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.trust.v1 import trust_pb2 as trust
from services.kit.rpc.trust_matrix import Matrix, read_matrix
from services.topology.domain.clerks import Committee, choose_clerks
from services.topology.planners.base import Sources

MOST_ASKED = 10_000


class Committees:
    """Choose committees without storing them; the caller stores the reply."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def choose(self, request: pb.ChooseClerksRequest) -> pb.Committee:
        """The best committee among the active candidates; an empty one where they have too few owners."""
        devices = await self._devices(sorted({*request.participants, *request.candidates}, key=str.encode))
        ids = sorted(devices, key=str.encode)
        candidates = [device for device in dict.fromkeys(request.candidates) if _is_active(devices.get(device))]
        owners = len({devices[device].owner_id for device in candidates})
        if owners < request.clerks:
            return pb.Committee(owners=owners)
        matrix = await read_matrix(self._sources.trust, ids)
        best = await asyncio.to_thread(_best, request, ids, devices, candidates, matrix)
        members = [devices[ids[at]] for at in best.clerks]
        return pb.Committee(
            members=[
                pb.CommitteeMember(device_id=member.id, owner_id=member.owner_id, signing_key=member.signing_key)
                for member in members
            ],
            least_trust=best.least_trust,
            total_trust=best.total_trust,
            owners=owners,
        )

    async def _devices(self, ids: Sequence[str]) -> dict[str, trust.Device]:
        result: dict[str, trust.Device] = {}
        for start in range(0, len(ids), MOST_ASKED):
            some = trust.GetDevicesRequest(device_ids=ids[start : start + MOST_ASKED])
            result |= {device.id: device for device in (await self._sources.registry.GetDevices(some)).devices}
        return result


def _is_active(device: trust.Device | None) -> bool:
    return device is not None and device.state == words.DEVICE_STATE_ACTIVE


def _best(
    request: pb.ChooseClerksRequest,
    ids: Sequence[str],
    devices: dict[str, trust.Device],
    candidates: Sequence[str],
    matrix: Matrix,
) -> Committee:
    place = {device: at for at, device in enumerate(ids)}
    trusting = matrix.dense()
    for acceptance in request.acceptances:
        if acceptance.device_id in place:
            taken = [place[device] for device in acceptance.clerks if device in place]
            others = np.ones(len(ids), dtype=bool)
            others[taken] = False
            trusting[place[acceptance.device_id], others] = 0.0
    return choose_clerks(
        trusting,
        [devices[device].owner_id for device in ids],
        participants=[place[device] for device in dict.fromkeys(request.participants) if device in place],
        candidates=[place[device] for device in candidates],
        clerks=request.clerks,
        threshold=request.threshold,
    )
