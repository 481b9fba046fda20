"""Stream request and response bodies: limits, promised digests, ranges. No model is ever in memory as a whole."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from services.gateway.errors import BadHeader, BodyCutShort, BodyTooLarge
from services.gateway.wire.responses import problem
from services.kit.database.blobs import CHUNK_BYTES, BlobStore, DigestMismatch, check_digest

DIGEST_HEADER = "Coterie-Digest"
MEDIA_TYPE = "application/octet-stream"
SMALL_BYTES = 256 * 1024
"""Bodies up to this size are read into memory, without asking aggregation first."""
_RANGE = re.compile(r"^bytes=(\d{1,18})-(\d{0,18})$")


def promised_size(request: Request) -> int | None:
    """Return the body's size from its Content-Length; None without one (chunked)."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def promised_digest(request: Request, *, required: bool = True) -> str:
    """Return the SHA-256 that the sender promises; empty if it is optional and missing."""
    digest = request.headers.get(DIGEST_HEADER, "")
    if not digest:
        if required:
            raise BadHeader(f"send the body's SHA-256 as the header {DIGEST_HEADER}: 64 hexadecimal digits")
        return ""
    return check_digest(digest)


async def read_within(request: Request, limit: int) -> bytes:
    """Read a body of at most `limit` bytes into memory."""
    check_size(promised_size(request), limit)
    pieces, size = [], 0
    async for piece in pieces_of(request):
        size += len(piece)
        check_size(size, limit)
        pieces.append(piece)
    return b"".join(pieces)


def check_size(size: int | None, limit: int) -> None:
    """Raise `BodyTooLarge` if the size, received or promised, exceeds the limit."""
    if size is not None and size > limit:
        raise BodyTooLarge(
            f"the body has {size} bytes or more; the limit is {limit}", details={"limit_bytes": str(limit)}
        )


async def pieces_of(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it arrives."""
    try:
        async for piece in request.stream():
            if piece:
                yield piece
    except ClientDisconnect as error:
        raise BodyCutShort("the connection closed before the body was complete; send it again") from error


async def store_small(request: Request, blobs: BlobStore, digest: str) -> int:
    """Read a small body, check its digest and store it without a staging name; return its size."""
    body = await read_within(request, SMALL_BYTES)
    result = hashlib.sha256(body).hexdigest()
    if result != digest:
        raise DigestMismatch(
            f"the body has SHA-256 {result}, not the promised {digest}: truncated or changed; send it again"
        )
    await blobs.put_bytes(body)
    return len(body)


async def download(request: Request, blobs: BlobStore, digest: str, size: int) -> Response:
    """Stream a blob with its digest as ETag; 304 if the caller has it, 206 for one range."""
    headers = {"ETag": f'"{digest}"', "Accept-Ranges": "bytes", "Cache-Control": "private, immutable, max-age=31536000"}
    if _has_it(request.headers.get("if-none-match", ""), digest):
        return Response(status_code=304, headers=headers)
    match = _RANGE.match(request.headers.get("range", ""))
    if match is None:
        headers["Content-Length"] = str(size)
        return StreamingResponse(await prefetched(blobs.stream(digest)), headers=headers, media_type=MEDIA_TYPE)
    first = int(match[1])
    last = min(int(match[2] or size - 1), size - 1)
    if first > last:
        content_range = {"Content-Range": f"bytes */{size}"}
        return problem(
            416, "bad_range", f"the blob has {size} bytes; request a range within them", headers=content_range
        )
    headers |= {"Content-Length": str(last - first + 1), "Content-Range": f"bytes {first}-{last}/{size}"}
    pieces = await prefetched(_part(blobs, digest, first, last + 1))
    return StreamingResponse(pieces, 206, headers, MEDIA_TYPE)


def _has_it(if_none_match: str, digest: str) -> bool:
    tags = {tag.strip().removeprefix("W/").strip('"') for tag in if_none_match.split(",")}
    return digest in tags or "*" in tags


async def _part(blobs: BlobStore, digest: str, start: int, end: int) -> AsyncIterator[bytes]:
    while start < end:
        piece = await asyncio.to_thread(blobs.read, digest, start, min(CHUNK_BYTES, end - start))
        start += len(piece)
        yield bytes(piece)


async def prefetched(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Fetch the first piece ahead, so that a missing blob is an error response and not a broken stream."""
    first = await anext(pieces, b"")

    async def all_pieces() -> AsyncIterator[bytes]:
        yield first
        async for piece in pieces:
            yield piece

    return all_pieces()
