"""What is wrong with a task's parameters."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Self


class BadParameter(ValueError):
    """A parameter that a task cannot have; the text names its path, the value received and what to do."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path

    @classmethod
    def unknown(cls, path: str, name: object, known: Iterable[str], of: str = "") -> Self:
        """A key that does not exist."""
        names = list(known)
        takes = f"{of or 'this section'} takes: {', '.join(names)}" if names else f"{of or 'it'} takes none"
        return cls(path, f"no such parameter{did_you_mean(name, names)}; {takes}")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A suggestion of the nearest known name, or nothing where none is near."""
    near = difflib.get_close_matches(str(name), list(known), 1)
    return f", did you mean {near[0]!r}?" if near else ""
