"""Names of relations on the wire: words joined by hyphens, where the domain's names are Python's."""

from __future__ import annotations

from coterie.records import enums
from services.trust.domain.relations import RelationKind
from services.trust.errors import InvalidField

KINDS = tuple(RelationKind)
"""Kinds the registry keeps."""

_BY_NAME = {kind.value.replace("_", "-"): kind for kind in KINDS}


def name(kind: str) -> enums.RelationKind:
    """How a kind is called on the wire."""
    return enums.RelationKind(kind.replace("_", "-"))


def named(text: str) -> RelationKind:
    """The kind that goes by that name."""
    if text not in _BY_NAME:
        raise InvalidField(f"kind must be one of {', '.join(map(repr, _BY_NAME))}, not {text[:40]!r}")
    return _BY_NAME[text]
