"""What can go wrong for a caller of the platform, drawn from the `reason` of its problem+json answers.

CoterieError
├── Refused                 the platform understood and said no; `reason`, `status`, `request_id`, `details`
│   ├── InvalidRequest      400, 422: the request itself is wrong; repeating it cannot help
│   │   ├── BadUpdate           the update does not fit the model, or holds numbers that are not finite
│   │   └── DigestMismatch      the bytes that arrived are not the bytes that were promised
│   ├── Unauthenticated     401: no key, or one that is unknown or revoked
│   ├── NotAllowed          403: this key may not do that
│   ├── NotFound            404: the thing named does not exist
│   ├── Conflict            409: not in the present state
│   │   ├── RoundOver           the round is over, or the device has no part in it: ask for work again
│   │   ├── AlreadyDelivered    another update of this device is stored for the round
│   │   └── DeviceRevoked       the device was revoked and takes part in nothing any more
│   ├── TooLarge            413: more bytes or items than are taken
│   └── Fault               5xx other than 503, and redirects: the platform's own mistake, quote the request id
├── Unreachable             no answer, or 503, for longer than patience allowed
├── BadAnswer               an answer that this version of the SDK cannot read
├── CorruptDownload         what was downloaded is not what was asked for
├── Declined                a strategy will not do the work it was given, and why
│   ├── NotInCircle             it would tell something to a device its owner does not know
│   └── BadLearner              the device's own learner cannot do the work, or does it wrong
│       ├── NotFinite               it gave NaN or infinity
│       └── LearnerFailed           its code raised; the cause has the traceback
├── BadHome                 a device's folder that cannot be used
└── WrongModel              the task's model does not fit the module, or cannot be read
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class CoterieError(Exception):
    """Root of everything this package raises on purpose."""


class Refused(CoterieError):
    """The platform said no."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        request_id: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.reason, self.request_id = message, status, reason, request_id
        self.details = dict(details or {})


class InvalidRequest(Refused):
    """The request itself is wrong."""


class BadUpdate(InvalidRequest):
    """The update does not fit the model."""


class DigestMismatch(InvalidRequest):
    """Other bytes arrived than were promised."""


class Unauthenticated(Refused):
    """No key, or one that is unknown or revoked."""


class NotAllowed(Refused):
    """This key may not do that."""


class NotFound(Refused):
    """The thing named does not exist."""


class Conflict(Refused):
    """The thing exists but its state does not allow this."""


class RoundOver(Conflict):
    """The round is over, the device has no part in it, or its work is too stale to count."""


class AlreadyDelivered(Conflict):
    """Another update of this device is stored for the round."""


class DeviceRevoked(Conflict):
    """The device takes part in nothing any more."""


class TooLarge(Refused):
    """More than is taken."""


class Fault(Refused):
    """The platform's own mistake."""


class Unreachable(CoterieError):
    """No answer within the caller's patience."""


class BadAnswer(CoterieError):
    """An answer that this version of the SDK cannot read; the message names the field."""


class CorruptDownload(CoterieError):
    """Downloaded bytes do not have the digest asked for."""


class Declined(CoterieError):
    """A strategy will not do this work; the platform receives the message."""


class NotInCircle(Declined):
    """The work would tell something to devices that the owner does not know by the keys they come with."""

    def __init__(self, message: str, strangers: Sequence[str]) -> None:
        super().__init__(message)
        self.strangers = tuple(strangers)


class BadLearner(Declined):
    """The device's learner cannot do this work, or gave back what no model can be made of."""


class NotFinite(BadLearner):
    """The learner gave numbers that are not finite."""


class LearnerFailed(BadLearner):
    """The learner's own code raised; the cause is what it raised."""


class BadHome(CoterieError):
    """A device's folder that cannot be used."""


class WrongModel(CoterieError):
    """The task's model does not fit the module."""


OF_REASON: dict[str, type[Refused]] = {
    "bad_update": BadUpdate,
    "digest_mismatch": DigestMismatch,
    "round_over": RoundOver,
    "not_in_round": RoundOver,
    "terms_changed": RoundOver,
    "sum_over": RoundOver,
    "too_stale": RoundOver,
    "already_delivered": AlreadyDelivered,
    "device_revoked": DeviceRevoked,
}
OF_STATUS: dict[int, type[Refused]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: InvalidRequest,
}


def _is_fault(status: int) -> bool:
    return status >= 500 or 300 <= status < 400


def refusal(status: int, problem: Mapping[str, Any]) -> Refused:
    """The error a problem+json answer stands for; unknown reasons fall back on the status."""
    reason = str(problem.get("reason", ""))
    kind = OF_REASON.get(reason) or OF_STATUS.get(status) or (Fault if _is_fault(status) else Refused)
    return kind(
        str(problem.get("detail") or f"the platform answered {status}"),
        status=status,
        reason=reason,
        request_id=str(problem.get("request_id", "")),
        details=problem.get("details") or {},
    )
