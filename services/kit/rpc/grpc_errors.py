"""Errors over gRPC: a status for every kind; kind, reason and details travel as trailing metadata."""

from __future__ import annotations

import json

import grpc
from grpc.aio import AioRpcError, Metadata

from services.kit import errors

KIND_KEY = "coterie-kind"
REASON_KEY = "coterie-reason"
DETAILS_KEY = "coterie-details-bin"

STATUS_OF_KIND: dict[type[errors.CoterieError], grpc.StatusCode] = {
    errors.InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    errors.Unprocessable: grpc.StatusCode.INVALID_ARGUMENT,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TooLarge: grpc.StatusCode.OUT_OF_RANGE,
    errors.Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
}
_KIND_OF_NAME = {kind.reason: kind for kind in STATUS_OF_KIND}


class UpstreamAway(errors.Unavailable):
    """Another service does not answer."""


class UpstreamFault(errors.CoterieError):
    """Another service failed unexpectedly."""


def kind_of(error: errors.CoterieError) -> type[errors.CoterieError]:
    """Return the kind of an error; `CoterieError` if it has none."""
    return next((kind for kind in type(error).__mro__ if kind in STATUS_OF_KIND), errors.CoterieError)


def trailing_metadata_of(error: errors.CoterieError) -> tuple[tuple[str, str | bytes], ...]:
    """Encode an error's kind, reason and details as trailing metadata."""
    return (
        (KIND_KEY, kind_of(error).reason),
        (REASON_KEY, error.reason),
        (DETAILS_KEY, json.dumps(error.details).encode()),
    )


def decode(error: AioRpcError) -> errors.CoterieError:
    """Restore the error behind a failed call: same kind, reason, message and details."""
    metadata = error.trailing_metadata() or Metadata()
    reason, details = metadata.get(REASON_KEY), metadata.get(DETAILS_KEY)
    kind = _KIND_OF_NAME.get(str(metadata.get(KIND_KEY)))
    if reason is not None and kind is not None:
        decoded = kind(error.details() or "", details=json.loads(details) if details else {})
        decoded.reason = str(reason)
        return decoded
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return UpstreamAway("a service needed for this does not answer; try again in a moment")
    return UpstreamFault(f"a service needed for this failed: {error.code().name}")
