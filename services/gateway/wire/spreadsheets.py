"""Long lists as CSV, streamed page by page."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from google.protobuf.message import Message
from starlette.responses import StreamingResponse

from services.gateway.wire.convert import to_json

PAGE_ITEMS = 1000
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
Fetch = Callable[[str], Awaitable[tuple[Iterable[Message], str]]]


async def csv_response(columns: Iterable[str], fetch: Fetch, name: str) -> StreamingResponse:
    """Stream the rows of all pages of `fetch(cursor)`; fetch the first page ahead, so that errors have a status."""
    names = list(columns)
    items, cursor = await fetch("")

    async def pieces() -> AsyncIterator[str]:
        yield _rows([names])
        page, after = items, cursor
        while True:
            yield _rows([_cell(to_json(item)[key]) for key in names] for item in page)
            if not after:
                return
            page, after = await fetch(after)

    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingResponse(pieces(), media_type="text/csv; charset=utf-8", headers=headers)


def _rows(rows: Iterable[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Prefix text that a spreadsheet would run as a formula with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value
