"""Kinds of relations that the registry stores or computes."""

from __future__ import annotations

from coterie.records.enums import RelationKind
from services.trust.errors import InvalidField

KINDS = tuple(RelationKind)


def require_kind(text: str) -> RelationKind:
    """Return the kind with that name, one of `KINDS`."""
    if text not in KINDS:
        raise InvalidField(f"kind must be one of {', '.join(repr(kind.value) for kind in KINDS)}, got {text[:40]!r}")
    return RelationKind(text)
