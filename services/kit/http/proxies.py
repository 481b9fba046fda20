"""Trusted proxies: derive a caller's address from `X-Forwarded-For`.

Any caller can send this header. Only entries that a configured proxy added count, so the header is read from the end.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FORWARDED = b"x-forwarded-for"
MOST_HOPS = 16


@dataclass(frozen=True, slots=True)
class Proxies:
    """Networks of the trusted proxies."""

    networks: tuple[Network, ...]

    @classmethod
    def read(cls, text: str) -> Proxies:
        """Parse addresses and networks separated by commas: `10.0.0.7, 192.168.1.0/24, fd00::/8`."""
        try:
            return cls(tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip()))
        except ValueError as error:
            raise ValueError(
                f"COTERIE_TRUSTED_PROXIES must be addresses and networks separated by commas: {error}"
            ) from error

    def trusts(self, address: str) -> bool:
        """Whether this is the address of a trusted proxy."""
        return bool(self.networks) and _is_within(address, self.networks)

    def caller(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> str:
        """Return the caller's address: the peer, or the last address in the header that is not a trusted proxy."""
        if not self.trusts(peer):
            return peer
        forwarded = b",".join(value for name, value in headers if name.lower() == FORWARDED).decode("latin-1")
        address = peer
        for hop in reversed(forwarded.split(",")[-MOST_HOPS:]):
            known = _address(hop.strip())
            if not known:
                break
            address = known
            if not self.trusts(address):
                break
        return address


def _address(text: str) -> str:
    """Return the address of a hop without its port; empty for an invalid one."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


@lru_cache(maxsize=4096)
def _is_within(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(known, ipaddress.IPv6Address) and known.ipv4_mapped is not None:
        known = known.ipv4_mapped
    return any(known in network for network in networks)
