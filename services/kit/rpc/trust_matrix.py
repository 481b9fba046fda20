"""Trust among many devices, read from the registry in pieces: the only source of trust for the other services."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from coterie_api.trust.v1 import trust_pb2, trust_pb2_grpc

DEADLINE_SECONDS = 60.0

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Pairs with positive combined trust α, by the devices' positions in the request; rows < columns.

    size: number of devices. direct: e of each pair, 0 for none. direct_weight: the ω in α.
    """

    size: int
    rows: Integers
    columns: Integers
    direct: Floats
    trust: Floats
    direct_weight: float

    def dense(self) -> Floats:
        """Return α as a dense symmetric matrix with a diagonal of 1."""
        full = np.zeros((self.size, self.size))
        full[self.rows, self.columns] = self.trust
        full[self.columns, self.rows] = self.trust
        np.fill_diagonal(full, 1.0)
        return full

    def without(self, pairs: Collection[tuple[int, int]], isolated: Collection[int] = ()) -> Matrix:
        """Remove the trust of these pairs and all trust of the isolated devices."""
        if not pairs and not isolated:
            return self
        apart = {min(a, b) * self.size + max(a, b) for a, b in pairs}
        retained = ~np.isin(self.rows * self.size + self.columns, np.fromiter(apart, dtype=np.int64, count=len(apart)))
        single = np.array(sorted(isolated), dtype=np.int64)
        retained &= ~np.isin(self.rows, single) & ~np.isin(self.columns, single)
        return replace(
            self,
            rows=self.rows[retained],
            columns=self.columns[retained],
            direct=self.direct[retained],
            trust=self.trust[retained],
        )


async def read_matrix(
    stub: trust_pb2_grpc.TrustAsyncStub,
    device_ids: Sequence[str],
    *,
    at: float = 0.0,
    direct_weight: float | None = None,
) -> Matrix:
    """Read the trust among the devices at one time (0 = now), with the task's ω or the registry's default."""
    request = trust_pb2.GetMatrixRequest(device_ids=device_ids, at=at, direct_weight=direct_weight)
    parts: list[tuple[Integers, Integers, Floats, Floats]] = []
    while True:
        reply = await stub.GetMatrix(request, timeout=DEADLINE_SECONDS)
        rows, columns = (np.array(list(column), dtype=np.int64) for column in (reply.rows, reply.columns))
        direct, trust = (np.array(list(column), dtype=np.float64) for column in (reply.direct, reply.trust))
        parts.append((rows, columns, direct, trust))
        if not reply.next_piece:
            break
        request.at, request.piece = reply.at, reply.next_piece
    rows, columns, direct, trust = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Matrix(
        size=len(device_ids),
        rows=rows,
        columns=columns,
        direct=direct,
        trust=trust,
        direct_weight=reply.direct_weight,
    )
