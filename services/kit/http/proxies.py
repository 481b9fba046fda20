"""Proxies in front: whose word about a caller's address is taken.

Behind a proxy every connection comes from the proxy. It says in `X-Forwarded-For` for whom, and anybody else may write
the same header: only what a configured proxy added counts, read from the end.
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
    """The proxies trusted to name callers."""

    networks: tuple[Network, ...]

    @classmethod
    def read(cls, text: str) -> Proxies:
        """From addresses and networks with commas between: `10.0.0.7, 192.168.1.0/24, fd00::/8`."""
        try:
            return cls(tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip()))
        except ValueError as error:
            raise ValueError(f"COTERIE_TRUSTED_PROXIES holds addresses and networks with commas: {error}") from error

    def trusts(self, address: str) -> bool:
        """Whether a proxy of ours has this address."""
        return bool(self.networks) and _is_within(address, self.networks)

    def caller(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> str:
        """The address of whoever asks: the peer, or the last in the header that is no proxy of ours."""
        if not self.trusts(peer):
            return peer
        told = b",".join(value for name, value in headers if name.lower() == FORWARDED).decode("latin-1")
        address = peer
        for hop in reversed(told.split(",")[-MOST_HOPS:]):
            known = _address(hop.strip())
            if not known:
                break
            address = known
            if not self.trusts(address):
                break
        return address


def _address(text: str) -> str:
    """A hop without its port; empty when it is no address."""
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
