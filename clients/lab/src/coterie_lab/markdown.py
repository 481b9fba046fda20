"""Tables of the pages that scripts write."""

from __future__ import annotations

from collections.abc import Iterable


def table(header: list[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; floats with four significant digits."""
    text = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    lines = [header, ["---"] * len(header), *text]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
