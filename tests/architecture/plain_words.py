"""Words that Coterie has retired, and a finder for them.

`python -m tests.architecture.plain_words [PATH …]` lists every place where a retired word stands, with what to use.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

IDENTIFIERS: Mapping[str, str] = {
    "told": "result, reported_… or the thing's noun",
    "said": "message, text or the thing's noun",
    "mine": "own_…",
    "kept": "retained, stored or cached",
    "found": "result, match or the thing's noun",
    "each": "the singular noun of what is iterated",
    "anew": "again",
    "nobody": "none, anonymous",
    "everybody": "all_…",
    "somebody": "another",
    "Bell": "Notifier",
    "Sleeper": "Subscription",
    "Chimes": "ReplicaNotifier",
    "Lines": "ConnectionTable",
    "Gathered": "nothing: one path",
    "Word": "OpenEnum",
    "Together": "Batcher",
    "lifeline": "exit_with_parent",
    "Caller": "Principal",
    "NOBODY_YET": "ANONYMOUS",
    "MAY_CALL": "ALLOWED",
    "Carrier": "BatchCall",
    "Upstreams": "ServiceClients",
    "Errand": "Job",
    "Gatekeeper": "AuthInterceptor",
    "Door": "Authenticator",
    "Patience": "LongPoller",
    "Pulse": "HeartbeatBatcher",
    "FAMILIES": "ROUTERS",
    "Way": "Strategy",
    "Procedure": "Strategy",
    "Chair": "coordinator",
    "Resitting": "retry",
    "Desk": "DutyIndex",
    "LiveRound": "OpenRound",
    "Company": "RoundInputs",
    "Census": "RoundGauge",
    "Tending": "RoundMonitor",
    "Newcomers": "LateJoiners",
    "Sitting": "SumSession",
    "sitting": "session",
    "sittings": "sessions",
    "muster": "ready_check",
    "Workbench": "RoundRunner",
    "AtWork": "WorkApi",
    "InSums": "SecureSumApi",
    "Linked": "PairingApi",
    "harmless": "sanitise",
    "Chronicles": "TrustHistory",
    "SocialMemory": "TrustCache",
    "Brain": "StationPolicy",
    "lasts": "is_slow",
    "Purse": "RoundBudget",
    "House": "AppContext",
    "Visit": "PageContext",
    "Morning": "OverviewData",
    "Matter": "Alert",
    "Street": "NeighbourFixture",
}
"""Names of variables, functions, classes and parameters: exact words of the code, and what to use."""

PARTS: Mapping[str, str] = {
    r"(?:^|_)told(?:_|$)": "the thing's noun",
    r"(?:^|_)nobody(?:_|$)": "none, anonymous",
    r"(?:^|_)everybody(?:_|$)": "all_…",
    r"(?:^|_)anew(?:_|$)": "again",
    r"^_?demand_": "require_…",
    r"(?:^|_)muster": "ready_check",
}
"""Parts of names."""

PROSE: Mapping[str, str] = {
    r"\b(?:no|some|every)body\b": "name the subject: no device, another owner, all members",
    r"\bwhoever\b": "name the subject",
    r"\bso (?:many|often)\b": "a number, or: how many, as often as",
    r"\bso long\b(?! as)": "a duration, or: while",
    r"\banew\b": "again",
    r"\bof (?:its|their|his|her) own\b": "its own …, separate",
    r"(?<!\bthere )\bis no (?!longer|more|such)": "is not a",
    r"\bmended\b": "fixed",
    r"\b(?:is|are|was|were|be|been) told\b": "receives, reads, learns; or name who sends what",
    r"\b(?:muster|chime|errand)s?\b": "ready check, notification, job",
}
"""Phrases of comments, docstrings, messages and pages."""


class Hit(NamedTuple):
    """One retired word."""

    path: str
    line: int
    word: str
    use: str


def hits_in_code(path: str, source: str) -> Iterator[Hit]:
    """Retired names, and retired phrases in comments and strings, of a Python file."""
    parts = [(re.compile(pattern), use) for pattern, use in PARTS.items()]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            if token.string in IDENTIFIERS:
                yield Hit(path, token.start[0], token.string, IDENTIFIERS[token.string])
                continue
            for pattern, use in parts:
                if pattern.search(token.string):
                    yield Hit(path, token.start[0], token.string, use)
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from hits_in_prose(path, token.string, token.start[0])


def hits_in_prose(path: str, text: str, first_line: int = 1) -> Iterator[Hit]:
    """Retired phrases of a text."""
    flat = text.replace("\n", " ")
    for pattern, use in PROSE.items():
        for match in re.finditer(pattern, flat, re.IGNORECASE):
            yield Hit(path, first_line + text.count("\n", 0, match.start()), match[0], use)


def tracked(folders: Sequence[str]) -> list[str]:
    """Files of the project below these folders."""
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def is_read(name: str) -> bool:
    """Whether a file is written by hand and in words."""
    if "_pb2" in name or name.startswith(
        ("tests/architecture/plain_words", "tests/architecture/test_plain_words", "tests/dumps/", "docs/results/lab-")
    ):
        return False
    return name.endswith((".py", ".md", ".proto"))


def hits(folders: Sequence[str]) -> Iterator[Hit]:
    """Every retired word below these folders."""
    for name in tracked(folders):
        if is_read(name):
            text = (ROOT / name).read_text()
            yield from hits_in_code(name, text) if name.endswith(".py") else hits_in_prose(name, text)


if __name__ == "__main__":
    for hit in hits(sys.argv[1:] or ["."]):
        print(f"{hit.path}:{hit.line}: {hit.word} (use: {hit.use})")
