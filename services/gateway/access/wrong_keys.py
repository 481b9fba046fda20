"""Rate limit on unknown API keys per address and minute, so that guessing is slow and cheap to reject."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from cachetools import TTLCache

from services.gateway.errors import TooManyWrongKeys

WINDOW_SECONDS = 60.0
MAX_ADDRESSES = 100_000


class WrongKeys:
    """Counts unknown keys per address, from the first for one minute; `most` 0 means no limit."""

    def __init__(self, most: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._counts: TTLCache[str, list[int], float] = TTLCache(MAX_ADDRESSES, WINDOW_SECONDS, monotonic)

    def require_few(self, address: str) -> None:
        """Raise if this address has sent too many."""
        count = self._counts.get(_network(address))
        if self._most and count is not None and count[0] >= self._most:
            raise TooManyWrongKeys(
                f"{self._most} unknown API keys came from your address within a minute; check it and wait a minute"
            )

    def add(self, address: str) -> None:
        """Count one more; this does not extend the minute."""
        network = _network(address)
        count = self._counts.get(network)
        if count is None:
            self._counts[network] = [1]
        else:
            count[0] += 1


def _network(address: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address, from which a caller can choose any."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
