"""Bodies from clerks of secure sums."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from services.gateway.schemas.base import Body, Digest, HexKey, HexSignature, Id

MAX_PARTICIPANTS = 100_000
_DIGEST, _SIGNATURE = "9f" * 32, "3c" * 64
_ShareKey = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]?)$")]


class Offer(Body):
    """A session key for one session."""

    model_config = ConfigDict(json_schema_extra={"example": {"session_key": _DIGEST, "signature": _SIGNATURE}})

    session_key: HexKey
    signature: HexSignature
    """The clerk's, of the place and the key."""


class ReadyCheck(Body):
    """Candidates that a clerk can serve."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"candidates": _DIGEST, "ready": ["dev_1"], "faults": {"dev_2": "letter"}}}
    )

    candidates: Digest
    """SHA-256 of the list of candidates that it received."""
    ready: Annotated[list[Id], Field(max_length=MAX_PARTICIPANTS)]
    """By id."""
    faults: Annotated[
        dict[Id, Literal["stranger", "signature", "letter", "terms", "shape", "seed", "root", "company"]],
        Field(default_factory=dict, max_length=MAX_PARTICIPANTS),
    ]
    """Faults of the others."""


class Agreement(Body):
    """A clerk's agreement to the survivors."""

    model_config = ConfigDict(json_schema_extra={"example": {"digest": _DIGEST, "signature": _SIGNATURE}})

    digest: Digest
    signature: HexSignature


class Answer(Body):
    """Digests of the sums of a clerk's shares."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"digest": _DIGEST, "digests": {"0": _DIGEST}, "signature": _SIGNATURE}}
    )

    digest: Digest
    """Of the survivors."""
    digests: Annotated[dict[_ShareKey, Digest], Field(min_length=1, max_length=35)]
    """Of the words of each share the clerk holds, by its number."""
    signature: HexSignature
