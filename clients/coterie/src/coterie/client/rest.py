"""Basic REST calls: any route, records, paged lists, and downloads into the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from coterie.agent.cache import BlobCache
from coterie.protocol.transport import Backoff, Stop, Transport
from coterie.records import Page
from coterie.records.reading import read

T = TypeVar("T")
PIECE_BYTES = 1 << 20
PAGE_ITEMS = 500
VERIFY_SECONDS = 300.0


class RestClient:
    """One key's connection to the platform; safe to use from several threads."""

    def __init__(
        self,
        url: str,
        api_key: str = "",
        *,
        cache: BlobCache | None = None,
        backoff: Backoff | None = None,
        stop: Stop | None = None,
        verify: bool | str = True,
    ) -> None:
        """`verify` is as in httpx: True, False, or a file with the CA's certificates."""
        self._transport = Transport(url, api_key, backoff=backoff, stop=stop, verify=verify)
        self.url, self.cache = self._transport.url, cache or BlobCache()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Gives connections back."""
        self._transport.close()

    def request(self, method: str, path: str, **options: Any) -> Any:
        """Any route: the answer's JSON; options as in `Transport.send`."""
        return self._transport.send(method, path, **options)

    def ask(self, kind: type[T], method: str, path: str, **options: Any) -> T:
        """Any route: the answer as a record of this kind."""
        return read(kind, self.request(method, path, **options))

    def pages(self, kind: type[T], path: str, *, cursor: str = "", **params: Any) -> Iterator[T]:
        """Every item of a paged list, as records of this kind; those behind a cursor."""
        while True:
            page = self.ask(_page_of(kind), "GET", path, params={"limit": PAGE_ITEMS, **params, "cursor": cursor})
            yield from page.items
            cursor = page.next_cursor
            if not cursor:
                return

    def _download(self, path: str, digest: str, most_bytes: int | None = None) -> Path:
        """Path of bytes in the cache, fetched and checked if they are not there."""

        def pieces(store: Any) -> None:
            self.request("GET", path, consume=lambda response: store(response.iter_bytes(PIECE_BYTES)))

        return self.cache.fetch(digest, pieces, most_bytes=most_bytes)


def promised(source: bytes | Path) -> tuple[str, Any]:
    """Digest of what is to be sent, and a function that makes a fresh body for each attempt."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest(), lambda: source
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest, lambda: source.open("rb")


def _page_of(kind: type[T]) -> type[Page[T]]:
    generic: Any = Page
    page: type[Page[T]] = generic[kind]
    return page
