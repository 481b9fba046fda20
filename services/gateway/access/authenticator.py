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

MAX_KEY_CHARACTERS = 512
RECENTLY_VALID_SECONDS = 3600.0


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
        self._cache: TTLCache[bytes, trust_pb2.Principal, float] = TTLCache(size, seconds, monotonic)
        self._recently_valid: TTLCache[bytes, None, float] = TTLCache(size, RECENTLY_VALID_SECONDS, monotonic)
        self._changes = 0

    async def identify(self, authorization: str, address: str) -> trust_pb2.Principal:
        """Return the holder of the key in an `Authorization: Bearer …` header from this address."""
        key = _bearer(authorization)
        digest = hashlib.sha256(key.encode()).digest()
        cached = self._cache.get(digest)
        if cached is not None:
            return cached
        if digest not in self._recently_valid:
            self._wrong_keys.require_few(address)
        try:
            principal = await self._authenticate(key, digest)
        except Unauthenticated:
            self._recently_valid.pop(digest, None)
            self._wrong_keys.add(address)
            raise
        self._recently_valid[digest] = None
        return principal

    async def _authenticate(self, key: str, digest: bytes) -> trust_pb2.Principal:
        changes = self._changes
        try:
            with acting_as(SERVICE):  # the caller is not authenticated yet
                principal = await self._registry.Authenticate(trust_pb2.AuthenticateRequest(api_key=key))
        except InvalidInput as error:  # malformed key
            raise Unauthenticated("unknown API key; ask an admin for a valid one") from error
        if changes == self._changes:  # do not cache an answer from before a revocation
            self._cache[digest] = principal
        return principal

    @contextmanager
    def watching(self, address: str) -> Iterator[None]:
        """Count wrong secrets other than API keys, such as enrolment tokens, as wrong keys of the address."""
        self._wrong_keys.require_few(address)
        try:
            yield
        except Unauthenticated:
            self._wrong_keys.add(address)
            raise

    def forget(self, *, subject: str = "", key_id: str = "") -> None:
        """Remove a subject or a key from the cache."""
        self._changes += 1
        for digest in list(self._cache):
            principal = self._cache.get(digest)  # may have expired since list()
            if principal is None:
                continue
            if (subject and principal.subject == subject) or (key_id and principal.key_id == key_id):
                self._cache.pop(digest, None)


def address_of(request: Request) -> str:
    """Return the client address of a request; empty if unknown."""
    return request.client.host if request.client is not None else ""


def _bearer(authorization: str) -> str:
    scheme, _, key = authorization.partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key:
        raise MissingKey("send your API key as the header `Authorization: Bearer <key>`")
    if len(key) > MAX_KEY_CHARACTERS or not key.isascii() or not key.isprintable():
        raise Unauthenticated("unknown API key; ask an admin for a valid one")
    return key
