"""API-key authentication, cached for a few seconds; a key change through this gateway invalidates the cache at once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cachetools import TTLCache
from starlette.requests import Request

from coterie_api.trust.v1 import trust_pb2
from services.gateway.access.wrong_keys import WrongKeys
from services.gateway.errors import MissingKey
from services.kit.errors import InvalidInput, Unauthenticated
from services.kit.rpc.principal import SERVICE, acting_as

if TYPE_CHECKING:  # exists in the type stub alone
    from coterie_api.trust.v1.trust_pb2_grpc import RegistryAsyncStub

MOST_KEY_CHARACTERS = 512
MET_SECONDS = 3600.0


class Authenticator:
    """Turns an `Authorization` header into a principal.

    The cache holds at most `size` principals for `seconds`, under the SHA-256 of their keys. Only valid keys are
    cached, so guessing cannot evict real ones. An address that guesses is blocked for a while, except for keys that
    were valid within the last hour.
    """

    def __init__(
        self,
        registry: RegistryAsyncStub,
        wrong_keys: WrongKeys,
        *,
        seconds: float,
        size: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry, self._wrong_keys = registry, wrong_keys
        self._known: TTLCache[bytes, trust_pb2.Principal, float] = TTLCache(size, seconds, monotonic)
        self._met: TTLCache[bytes, None, float] = TTLCache(size, MET_SECONDS, monotonic)
        self._changes = 0

    async def identify(self, authorization: str, address: str) -> trust_pb2.Principal:
        """The holder of the key in an `Authorization: Bearer …` header that came from this address."""
        key = _bearer(authorization)
        place = hashlib.sha256(key.encode()).digest()
        known = self._known.get(place)
        if known is not None:
            return known
        if place not in self._met:
            self._wrong_keys.require_few(address)
        try:
            principal = await self._ask(key, place)
        except Unauthenticated:
            self._met.pop(place, None)
            self._wrong_keys.add(address)
            raise
        self._met[place] = None
        return principal

    async def _ask(self, key: str, place: bytes) -> trust_pb2.Principal:
        changes = self._changes
        try:
            with acting_as(SERVICE):  # not authenticated yet: the gateway asks for itself
                principal = await self._registry.Authenticate(trust_pb2.AuthenticateRequest(api_key=key))
        except InvalidInput as error:  # not even the shape of a key
            raise Unauthenticated("the API key is not known; ask an admin for one") from error
        if changes == self._changes:  # an answer from before a revocation must not outlive it
            self._known[place] = principal
        return principal

    @contextmanager
    def watching(self, address: str) -> Iterator[None]:
        """Around what another secret than a key opens: wrong ones count as wrong keys of the address."""
        self._wrong_keys.require_few(address)
        try:
            yield
        except Unauthenticated:
            self._wrong_keys.add(address)
            raise

    def forget(self, *, subject: str = "", key_id: str = "") -> None:
        """Drops what is remembered of a subject or of a key; the registry is asked again."""
        self._changes += 1
        for place in list(self._known):
            principal = self._known.get(place)  # may have run out between the two lines
            if principal is None:
                continue
            if (subject and principal.subject == subject) or (key_id and principal.key_id == key_id):
                self._known.pop(place, None)


def address_of(request: Request) -> str:
    """Where a request came from, as far as it is known."""
    return request.client.host if request.client is not None else ""


def _bearer(authorization: str) -> str:
    scheme, _, key = authorization.partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key:
        raise MissingKey("send your API key as the header `Authorization: Bearer <key>`")
    if len(key) > MOST_KEY_CHARACTERS or not key.isascii() or not key.isprintable():
        raise Unauthenticated("the API key is not known; ask an admin for one")
    return key
