"""Bodies in and out, piece by piece: limits, promised digests, ranges. A model is never in memory as a whole."""

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
"""Bodies up to this are held in memory, and forgotten again if what they belong to is refused."""
_RANGE = re.compile(r"^bytes=(\d{1,18})-(\d{0,18})$")


def promised_size(request: Request) -> int | None:
    """The body's size as its head tells it; None when it does not (chunked)."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def promised_digest(request: Request, *, required: bool = True) -> str:
    """The SHA-256 the sender promises; empty when it may be and is left out."""
    digest = request.headers.get(DIGEST_HEADER, "")
    if not digest:
        if required:
            raise BadHeader(f"send the body's SHA-256 as the header {DIGEST_HEADER}: 64 hexadecimal digits")
        return ""
    return check_digest(digest)


async def read_within(request: Request, limit: int) -> bytes:
    """A small body, whole."""
    check_size(promised_size(request), limit)
    pieces, size = [], 0
    async for piece in pieces_of(request):
        size += len(piece)
        check_size(size, limit)
        pieces.append(piece)
    return b"".join(pieces)


def check_size(size: int | None, limit: int) -> None:
    """Refuses a body that is, or says it is, larger than `limit`."""
    if size is not None and size > limit:
        raise BodyTooLarge(
            f"the body has {size} bytes or more; at most {limit} are taken here", details={"limit_bytes": str(limit)}
        )


async def pieces_of(request: Request) -> AsyncIterator[bytes]:
    """The body as it arrives."""
    try:
        async for piece in request.stream():
            if piece:
                yield piece
    except ClientDisconnect as error:
        raise BodyCutShort("the connection ended before the body did; send it again") from error


async def store_small(request: Request, blobs: BlobStore, digest: str) -> int:
    """Takes a body that fits in memory: checked first and written once, without a staging name; its size."""
    body = await read_within(request, SMALL_BYTES)
    result = hashlib.sha256(body).hexdigest()
    if result != digest:
        raise DigestMismatch(
            f"the body has SHA-256 {result}, not {digest} as promised: cut short or changed; send it again"
        )
    await blobs.put_bytes(body)
    return len(body)


async def download(request: Request, blobs: BlobStore, digest: str, size: int) -> Response:
    """A blob as an answer: streamed, with its digest as ETag; 304 when the caller has it, 206 for one range."""
    headers = {"ETag": f'"{digest}"', "Accept-Ranges": "bytes", "Cache-Control": "private, immutable, max-age=31536000"}
    if _has_it(request.headers.get("if-none-match", ""), digest):
        return Response(status_code=304, headers=headers)
    match = _RANGE.match(request.headers.get("range", ""))
    if match is None:
        headers["Content-Length"] = str(size)
        return StreamingResponse(await begun(blobs.stream(digest)), headers=headers, media_type=MEDIA_TYPE)
    first = int(match[1])
    last = min(int(match[2] or size - 1), size - 1)
    if first > last:
        content_range = {"Content-Range": f"bytes */{size}"}
        return problem(416, "bad_range", f"the blob has {size} bytes; ask for some of those", headers=content_range)
    headers |= {"Content-Length": str(last - first + 1), "Content-Range": f"bytes {first}-{last}/{size}"}
    pieces = await begun(_part(blobs, digest, first, last + 1))
    return StreamingResponse(pieces, 206, headers, MEDIA_TYPE)


def _has_it(if_none_match: str, digest: str) -> bool:
    tags = {tag.strip().removeprefix("W/").strip('"') for tag in if_none_match.split(",")}
    return digest in tags or "*" in tags


async def _part(blobs: BlobStore, digest: str, start: int, end: int) -> AsyncIterator[bytes]:
    while start < end:
        piece = await asyncio.to_thread(blobs.read, digest, start, min(CHUNK_BYTES, end - start))
        start += len(piece)
        yield bytes(piece)


async def begun(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same pieces with the first one fetched already, so that a missing blob is still a clean refusal."""
    first = await anext(pieces, b"")

    async def all_pieces() -> AsyncIterator[bytes]:
        yield first
        async for piece in pieces:
            yield piece

    return all_pieces()
