"""Who tries keys that nobody has: counted per address and minute, so that guessing is slow and cheap to us."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from cachetools import TTLCache

from services.gateway.errors import TooManyWrongKeys

WINDOW_SECONDS = 60.0
MOST_ADDRESSES = 100_000


class WrongKeys:
    """Wrong keys of each address within the minute that began with its first; `most` 0 means no limit."""

    def __init__(self, most: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._counts: TTLCache[str, list[int], float] = TTLCache(MOST_ADDRESSES, WINDOW_SECONDS, monotonic)

    def require_few(self, address: str) -> None:
        """Raises when this address has tried too many."""
        count = self._counts.get(_network(address))
        if self._most and count is not None and count[0] >= self._most:
            raise TooManyWrongKeys(
                f"{self._most} unknown API keys came from your address within a minute; check your key, wait a minute"
            )

    def add(self, address: str) -> None:
        """Counts one more; the minute is not prolonged by it."""
        place = _network(address)
        count = self._counts.get(place)
        if count is None:
            self._counts[place] = [1]
        else:
            count[0] += 1


def _network(address: str) -> str:
    """The address itself; of IPv6 its first 64 bits, since a caller has all of the rest to choose from."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
