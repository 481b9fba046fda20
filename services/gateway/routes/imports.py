"""Bulk imports into the trust registry as NDJSON: a header on the first line, a row on each other line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypeVar

from fastapi import Path
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from coterie.records import ImportProgress
from coterie_api.trust.v1 import trust_pb2
from services.gateway.routes.base import Platform, router_for
from services.gateway.schemas.imports import ImportHeader, ImportRow
from services.gateway.wire.bodies import MEDIA_TYPE, pieces_of
from services.gateway.wire.convert import to_proto
from services.gateway.wire.responses import JsonResponse, message_response
from services.kit.errors import CoterieError, InvalidInput

CHUNK_ROWS = 2_000
MAX_LINE_BYTES = 64 * 1024
IMPORT_SECONDS = 6 * 3600.0
_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "NDJSON: an `ImportHeader`, then an `ImportRow` on each line, such as "
        '`{"name": "town", "owner_name": "Town"}` and `{"line": 1, "interaction": {"device_a": "lamp", '
        '"device_b": "phone", "positive": true, "duration_seconds": 60, "at": 1767225600}}`.',
        "required": True,
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}
M = TypeVar("M", bound=BaseModel)
router = router_for("imports")


class BadRow(InvalidInput):
    """A line of the body is not a valid header or row; the lines before it are stored."""


@router.post("/v1/trust/imports", response_model=ImportProgress, summary="Import devices and ties", openapi_extra=_BODY)
async def import_rows(request: Request, platform: Platform) -> JsonResponse:
    """The body streams. Rows are stored in chunks; when a line is invalid or the connection ends, the stored rows stay.
    Sending the same name with the same rows again continues after them and skips stored lines."""
    lines = _lines_of(request)
    header = await _header(lines)
    body = _Rows(header, lines)
    progress = await platform.trust.Import(body.chunks(), timeout=IMPORT_SECONDS)
    if body.failure is not None:
        raise body.failure
    return message_response(progress)


@router.get("/v1/trust/imports/{name}", response_model=ImportProgress, summary="Progress of an import")
async def get_import(name: Annotated[str, Path(min_length=1, max_length=60)], platform: Platform) -> JsonResponse:
    """The last stored line and the counts over all runs."""
    return message_response(await platform.trust.GetImport(trust_pb2.GetImportRequest(name=name)))


class _Rows:
    """The rest of a body as chunks for the registry.

    An invalid line ends the stream and sets `failure`, so that the registry stores the lines before it; an exception
    inside the stream would discard them.
    """

    def __init__(self, header: ImportHeader, lines: AsyncIterator[bytes]) -> None:
        self.failure: CoterieError | None = None
        self._header = to_proto(trust_pb2.ImportHeader, header.model_dump(exclude={"lines"}))
        self._lines = lines

    async def chunks(self) -> AsyncIterator[trust_pb2.ImportChunk]:
        """Yield the header, then rows in chunks."""
        yield trust_pb2.ImportChunk(header=self._header)
        batch: list[bytes] = []
        first = 2  # line of the body; the header is line 1
        try:
            async for line in self._lines:
                batch.append(line)
                if len(batch) == CHUNK_ROWS:
                    yield await self._chunk(batch, first)
                    batch, first = [], first + len(batch)
                    if self.failure is not None:
                        return
        except CoterieError as error:
            self.failure = error
        if batch:
            yield await self._chunk(batch, first)

    async def _chunk(self, batch: list[bytes], first: int) -> trust_pb2.ImportChunk:
        rows, error = await asyncio.to_thread(_read_rows, batch, first)
        self.failure = error or self.failure
        return trust_pb2.ImportChunk(rows=rows)


def _read_rows(batch: list[bytes], first: int) -> tuple[list[trust_pb2.ImportRow], BadRow | None]:
    """Parse lines up to the first invalid one; return the rows and its error."""
    rows: list[trust_pb2.ImportRow] = []
    for number, line in enumerate(batch, start=first):
        if not line.strip():
            continue
        try:
            rows.append(to_proto(trust_pb2.ImportRow, _read(ImportRow, line, number)))
        except BadRow as error:
            return rows, error
    return rows, None


async def _header(lines: AsyncIterator[bytes]) -> ImportHeader:
    async for line in lines:
        return _read(ImportHeader, line, 1)
    raise BadRow("the body is empty; its first line must be the import's header", details={"line": "1"})


def _read(kind: type[M], line: bytes, number: int) -> M:
    try:
        if rb"\u0000" in line:
            raise BadRow(f"line {number} of the body: the character U+0000 cannot be stored")
        return kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        prefix = f"{field}: " if field else ""
        details = {"line": str(number), "field": field}
        raise BadRow(f"line {number} of the body: {prefix}{first['msg']}", details=details) from error


async def _lines_of(request: Request) -> AsyncIterator[bytes]:
    """Yield the body's lines, the last with or without a line break; refuse lines longer than `MAX_LINE_BYTES`."""
    rest, number = b"", 0
    async for piece in pieces_of(request):
        *complete, rest = (rest + piece).split(b"\n")
        for line in complete:
            number += 1
            yield _within(line, number)
        _within(rest, number + 1)
    if rest:
        yield rest


def _within(line: bytes, number: int) -> bytes:
    if len(line) > MAX_LINE_BYTES:
        message = f"line {number} of the body has more than {MAX_LINE_BYTES} bytes; a row is one short JSON object"
        raise BadRow(message, details={"line": str(number)})
    return line
