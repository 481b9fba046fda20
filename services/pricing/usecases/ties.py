"""Trust among a round's participants, read from the trust registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy import sparse

from coterie_api.trust.v1 import trust_pb2
from services.kit.errors import TooLarge
from services.kit.rpc.trust_matrix import read_matrix

if TYPE_CHECKING:
    from coterie_api.trust.v1.trust_pb2_grpc import TrustAsyncStub

MOST_DEVICES = 10_000


class RoundTooLarge(TooLarge):
    """More participants than one request for ties can take."""


class Ties(Protocol):
    """A source of ties among devices."""

    async def among(self, device_ids: Sequence[str], *, direct: bool = False) -> sparse.csr_array:
        """Trust in [0, 1] between devices, symmetric with a zero diagonal, in the order given: combined trust, which
        includes paths through others, or only `direct` trust."""
        ...

    async def declared(self, device_ids: Sequence[str]) -> sparse.csr_array:
        """How close the owner of row i says it is to that of column j, in [0, 1]; 0 unless both declare friendship,
        and between devices of one owner."""
        ...


class RegistryTies:
    """Ties from the trust registry."""

    def __init__(self, stub: TrustAsyncStub) -> None:
        self._trust = stub

    async def among(self, device_ids: Sequence[str], *, direct: bool = False) -> sparse.csr_array:
        """Return one matrix, read in pieces."""
        _check_size(device_ids)
        result = await read_matrix(self._trust, device_ids)
        values = result.direct if direct else result.trust
        upper = sparse.csr_array((values, (result.rows, result.columns)), shape=(result.size, result.size))
        upper.eliminate_zeros()
        return sparse.csr_array(upper + upper.T)

    async def declared(self, device_ids: Sequence[str]) -> sparse.csr_array:
        """Return the owners' declarations, spread over their devices."""
        _check_size(device_ids)
        result = await self._trust.GetDeclared(trust_pb2.GetDeclaredRequest(device_ids=device_ids), timeout=60.0)
        n, owners = len(device_ids), max(result.owners, default=-1) + 1
        declarations = sparse.csr_array(
            (list(result.strengths), (list(result.rows), list(result.columns))), shape=(owners, owners)
        )
        owned = sparse.csr_array((np.ones(n), (np.arange(n), list(result.owners))), shape=(n, owners))
        return sparse.csr_array(owned @ declarations @ owned.T)


def _check_size(device_ids: Sequence[str]) -> None:
    if len(device_ids) > MOST_DEVICES:
        raise RoundTooLarge(
            f"{len(device_ids)} participants are more than the {MOST_DEVICES} whose ties can be priced in one "
            "round; lower the task's max_devices"
        )
