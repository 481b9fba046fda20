"""What can go wrong in the aggregation server, each one of the kit's kinds."""

from __future__ import annotations

from services.kit.errors import AlreadyExists, Conflict, InvalidInput, NotFound, PermissionDenied, TooLarge


class BadModel(InvalidInput):
    """Not a safetensors file of floating-point tensors."""


class BadUpdate(InvalidInput):
    """The update does not fit the model: other tensors, shapes or dtypes, or values that are no finite numbers."""


class UpdateTooLarge(TooLarge):
    """The update has more bytes than the model allows."""


class BadTask(InvalidInput):
    """The task's specification does not make sense."""


class UnknownRule(InvalidInput):
    """No rule has that name."""


class BadRule(InvalidInput):
    """A rule's parameters do not make sense, or the number of devices cannot bear them."""


class BadWeights(InvalidInput):
    """Weights or trust do not fit the updates."""


class BadUpdates(InvalidInput):
    """Updates that cannot be combined: of different lengths, none at all, or with numbers too large."""


class UnknownTask(NotFound):
    """No task has that id."""


class UnknownRound(NotFound):
    """The task has had no such round yet."""


class UnknownLetter(NotFound):
    """No letter has that id, or it is not for the caller."""


class TaskExists(AlreadyExists):
    """The publisher has another task of that name."""


class WrongTaskState(Conflict):
    """The task is not in a state that allows this."""


class NotEnrolled(Conflict):
    """The device is not enrolled in the task."""


class NotInRound(Conflict):
    """The device has no part in that round."""


class RoundOver(Conflict):
    """That round is over."""


class AlreadyDelivered(Conflict):
    """The device has delivered another update for that round."""


class NotYourTask(PermissionDenied):
    """The task belongs to another publisher."""


class BadSums(InvalidInput):
    """A question about secure sums that makes no sense."""


class NoGrid(InvalidInput):
    """No grid serves a secure sum of so many devices with so much noise."""
