"""The base of all records: reading and writing, open enums, pages, and their schema in OpenAPI documents.

Records are plain frozen dataclasses. The gateway passes the same classes to FastAPI as response schemas, so a field is
declared once: pydantic reads the hints, the attribute docstrings and the attributes below that carry its name. This
package does not import pydantic.

A field that may be absent has a default: the meaning of its absence.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

from coterie.records.reading import plain, read


class Record:
    """An answer of the platform, or a part of one."""

    __slots__ = ()
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "use_attribute_docstrings": True,
        "json_schema_serialization_defaults_required": True,
    }

    @classmethod
    def from_json(cls, given: Any) -> Self:
        """From the JSON the platform answers; unknown fields are ignored, `BadAnswer` names one that cannot be."""
        return read(cls, given)

    def to_dict(self) -> dict[str, Any]:
        """As the platform writes it: plain Python that any JSON encoder takes."""
        document: dict[str, Any] = plain(self)
        return document

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> Any:
        """The class's docstring is its description, which pydantic leaves out for plain dataclasses."""
        schema = handler(core_schema)
        handler.resolve_ref_schema(schema)["description"] = inspect.getdoc(cls)
        return schema


class OpenEnum(StrEnum):
    """One of a set of words that may grow.

    A word of a newer platform is kept: it equals its text and is none of the members.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        word = str.__new__(cls, value)
        word._name_ = word._value_ = value
        return word

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> Any:
        """Any text, so that a new word breaks no client that was made from the document."""
        words = [word.value for word in cls]
        return {"type": "string", "description": inspect.getdoc(cls), "x-extensible-enum": words}


class Known:
    """Of what callers send: a word that the platform knows, or one of these; of what it answers, any."""

    def __init__(self, *also: str) -> None:
        self._also = also

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {"type": "literal", "expected": [*(word.value for word in source), *self._also]}


class Limits:
    """Of what callers send: the least and the greatest number that is taken."""

    def __init__(self, least: float, most: float) -> None:
        self._limits = {"ge": least, "le": most}

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return handler(source) | self._limits


class Shown:
    """How JSON shows a value whose Python type says something else."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> Any:
        return dict(self._schema)


Key: TypeAlias = Annotated[bytes, Shown({"type": "string"})]
"""Bytes; base64 in JSON."""
Extended: TypeAlias = Annotated[
    float, Shown({"anyOf": [{"type": "number"}, {"type": "string", "enum": ["inf", "-inf", "nan"]}]})
]
"""A float that may be infinite, which JSON lacks: there it is the string "inf"."""
Object: TypeAlias = Mapping[str, Any]
"""A JSON object whose keys are the task's, the planner's or the solver's own."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Items(Record, Generic[T]):
    """A whole list."""

    items: tuple[T, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Record, Generic[T]):
    """A page of a list."""

    items: tuple[T, ...]
    next_cursor: str
    """Give it as `cursor` for the next page; empty at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Record):
    """Why a request was refused (RFC 9457). `reason` is stable; `detail` is for people and says what to do next."""

    type: str = ""
    title: str = ""
    status: int = 0
    detail: str = ""
    reason: str = ""
    request_id: str = ""
    details: Object = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live(Record):
    """The process runs."""

    status: Literal["serving"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Record):
    """Whether every service answers, and which does not."""

    status: Literal["serving", "away"]
    services: Mapping[str, Literal["serving", "away"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica(Record):
    """One process of a service, and how fast it answers; what it says is empty when it is away."""

    name: str
    """As `COTERIE_REPLICA` says, or its machine's."""
    state: Literal["serving", "away"]
    version: str
    commit: str
    certificate_ends_at: float
    """When the first of its certificates ends; 0 = it has none, or does not say."""
    calls: int
    """Of how many calls, the last ones, the two times are; those that asked to wait are left out."""
    p50_seconds: float
    """What half of them took at most."""
    p95_seconds: float
    """What 95 of 100 took at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build(Record):
    """Of which version and commit a service is; both empty when it is away."""

    version: str
    commit: str
    certificate_ends_at: float = 0.0
    """When the first of its certificates ends; 0 = it has none, or does not say."""
    replicas: tuple[Replica, ...] = ()
    """Its processes; of the gateway the one that answered. Empty from a platform that does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions(Record):
    """The gateway's version and those of the services behind it."""

    services: Mapping[str, Build]
