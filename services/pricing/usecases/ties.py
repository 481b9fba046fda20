"""Who trusts whom among a round's participants, asked of the trust registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from scipy import sparse

from services.kit.errors import TooLarge
from services.kit.matrix import read_matrix

if TYPE_CHECKING:
    from coterie_api.trust.v1.trust_pb2_grpc import TrustAsyncStub

MOST_DEVICES = 10_000


class RoundTooLarge(TooLarge):
    """More participants than ties can be asked for at once."""


class Ties(Protocol):
    """Somebody who knows the ties among devices."""

    async def among(self, device_ids: Sequence[str], *, direct: bool = False) -> sparse.csr_array:
        """Trust in [0, 1] between devices, symmetric with a zero diagonal, in the order given: combined, which holds
        paths through others, or `direct` alone."""
        ...


class RegistryTies:
    """Ties from the trust registry."""

    def __init__(self, stub: TrustAsyncStub) -> None:
        self._stub = stub

    async def among(self, device_ids: Sequence[str], *, direct: bool = False) -> sparse.csr_array:
        """One matrix; the registry takes so many devices at once."""
        if len(device_ids) > MOST_DEVICES:
            raise RoundTooLarge(
                f"{len(device_ids)} participants are more than the {MOST_DEVICES} whose ties can be priced in one "
                "round; lower the task's max_devices"
            )
        found = await read_matrix(self._stub, device_ids)
        values = found.direct if direct else found.trust
        upper = sparse.csr_array((values, (found.rows, found.columns)), shape=(found.size, found.size))
        upper.eliminate_zeros()
        return sparse.csr_array(upper + upper.T)
