"""Sanitise text from outside before a terminal or log shows it.

Control characters move cursors, change titles and colours and hide lines; bidirectional overrides change the order of
what is displayed. Letters, accents, emoji and right-to-left scripts stay as they are.
"""

from __future__ import annotations

import re

# C0, DEL, C1, line and paragraph separators, and the embeddings, overrides and isolates of bidirectional text.
_COMMANDS = "\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]*$"
"""What a name may be, as a pattern of JSON Schema."""
LINES = r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]*$"
"""What prose may be: tabs and ends of lines are allowed."""
_IN_LINES = re.compile(f"(?![\t\n])[{_COMMANDS}]")
_IN_ONE_LINE = re.compile(f"[{_COMMANDS}]")


def sanitise(text: str) -> str:
    """The text with every such character written out as in JSON, `\\u001b`; tabs and ends of lines stay."""
    return _IN_LINES.sub(_written_out, text)


def require_sanitised(text: str, *, lines: bool = False) -> str:
    """The text itself; raises ValueError with what to remove. `lines`: tabs and ends of lines are allowed."""
    result = (_IN_LINES if lines else _IN_ONE_LINE).search(text)
    if result is not None:
        raise ValueError(
            f"control characters are not taken: remove U+{ord(result[0]):04X} at position {result.start()}"
        )
    return text


def _written_out(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
