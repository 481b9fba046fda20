"""Types that all schemas share: ids, times, amounts."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from coterie.protocol.sanitise import LINES, ONE_LINE, require_sanitised

ID_PATTERN = r"^[A-Za-z0-9_.:-]{1,128}$"
DIGEST_PATTERN = r"^[0-9a-f]{64}$"
MOST_INT32 = 2**31 - 1
MOST_INT64 = 2**63 - 1
LATEST = 1e11
"""Latest valid time in Unix seconds (the year 5138); a larger one is probably in milliseconds."""

Id = Annotated[str, Field(pattern=ID_PATTERN)]
Digest = Annotated[str, Field(pattern=DIGEST_PATTERN, description="SHA-256, 64 lower-case hexadecimal digits.")]
PublicKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{43}=$", description="32 bytes, base64.")]
Signature = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{86}==$", description="64 bytes, base64.")]
HexKey = Annotated[str, Field(pattern=DIGEST_PATTERN, description="32 bytes, lower-case hexadecimal.")]
HexSignature = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$", description="64 bytes, lower-case hexadecimal.")]
Name = Annotated[
    str,
    Field(min_length=1, max_length=100, json_schema_extra={"pattern": ONE_LINE}),
    AfterValidator(require_sanitised),
]
OpenEnum = Annotated[
    str, Field(max_length=100, json_schema_extra={"pattern": ONE_LINE}), AfterValidator(require_sanitised)
]
Prose = Annotated[
    str,
    Field(max_length=2000, json_schema_extra={"pattern": LINES}),
    AfterValidator(partial(require_sanitised, lines=True)),
]
Essay = Annotated[
    str,
    Field(max_length=10_000, json_schema_extra={"pattern": LINES}),
    AfterValidator(partial(require_sanitised, lines=True)),
]
Time = Annotated[float, Field(ge=0, le=LATEST, description="Unix seconds.")]
Finite = Annotated[float, Field(ge=-1e15, le=1e15)]
Amount = Annotated[float, Field(ge=0, le=1e15)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Int32 = Annotated[int, Field(ge=0, le=MOST_INT32)]
Int64 = Annotated[int, Field(ge=0, le=MOST_INT64)]
Money = Annotated[int, Field(ge=0, le=MOST_INT64, description="Micro-credits.")]
Object = dict[str, Any]

OwnerId = Annotated[str, Path(pattern=ID_PATTERN, description="Owner's id.", examples=["own_01jd0c"])]
DeviceId = Annotated[str, Path(pattern=ID_PATTERN, description="Device's id.", examples=["dev_01jd0d"])]
TaskId = Annotated[str, Path(pattern=ID_PATTERN, description="Task's id.", examples=["tsk_01jd0e"])]
RoundNumber = Annotated[int, Path(ge=1, le=MOST_INT32, description="Round, from 1.", examples=[1])]
Cohort = Annotated[int, Path(ge=0, le=MOST_INT32, description="Which sum of the round, from 0.", examples=[0])]
SessionNumber = Annotated[int, Path(ge=1, le=MOST_INT32, description="Session of the sum, from 1.", examples=[1])]
ShareNumber = Annotated[int, Path(ge=0, le=34, description="Number of the share.", examples=[0])]
AnyId = Annotated[str, Path(pattern=ID_PATTERN)]

Limit = Annotated[int, Query(ge=1, le=500, description="At most this many items.")]
Cursor = Annotated[
    str, Query(max_length=500, description="`next_cursor` of the previous page; empty for the first page.")
]
IdFilter = Annotated[str, Query(pattern=r"^[A-Za-z0-9_.:-]{0,128}$", description="Only these; empty means all.")]
WordFilter = Annotated[str, Query(max_length=100, description="Only these; empty means all.")]
Moment = Annotated[float, Query(ge=0, le=LATEST, description="Unix seconds; 0 means now, or the beginning.")]
WaitSeconds = Annotated[float, Query(ge=0, le=30, description="Maximum seconds to wait for a result.")]


class Body(BaseModel):
    """Base of request bodies: unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
