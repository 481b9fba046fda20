"""What can go wrong in the aggregation server, each one of the kit's kinds."""

from __future__ import annotations

from services.kit.errors import (
    AlreadyExists,
    Conflict,
    Exhausted,
    InvalidInput,
    NotFound,
    PermissionDenied,
    TooLarge,
    Unavailable,
    Unprocessable,
)


class BadModel(InvalidInput):
    """Not a safetensors file of floating-point tensors."""


class BadUpdate(InvalidInput):
    """The update does not fit the model: other tensors, shapes or dtypes, or values that are no finite numbers."""


class QuotaSpent(Exhausted):
    """A device or a publisher has stored as much as it may."""


class LetterTooLarge(TooLarge):
    """The letter has more bytes than its round's model explains."""


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


class BadWorths(InvalidInput):
    """Worths that do not fit the models they were asked for."""


class UnknownTask(NotFound):
    """No task has that id."""


class UnknownRound(NotFound):
    """The task has had no such round yet."""


class UnknownVersion(NotFound):
    """The task has no such version of that model."""


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


class BufferOpening(Unavailable):
    """An asynchronous task is between two buffers."""


class LeaseLost(Unavailable):
    """Another replica has taken over what this one was doing; the round is read again."""


class TooStale(Conflict):
    """The update was made from a version of the model that is too old to count."""


class NotJudged(Conflict):
    """No head's verdict on the device stands in that round, or none to which it may object."""


class AlreadyDelivered(Conflict):
    """The device has delivered another update for that round."""


class NotYourTask(PermissionDenied):
    """The task belongs to another publisher."""


class NotInvited(PermissionDenied):
    """The task is for other owners or devices."""


class BadSums(InvalidInput):
    """A question about secure sums that makes no sense."""


class NoGrid(Unprocessable):
    """No grid fits a secure sum of this many devices with this much noise."""


class BadMaskedUpdate(Unprocessable):
    """A masked update whose shapes, types, letters or signature are not those the terms ask for."""


class MetricsNotTaken(Unprocessable):
    """Figures came beside a masked update, where one device's are no sum, or beside noise, which covers none."""


class TermsChanged(Conflict):
    """The update was made under other terms than those of the present session."""


class SumOver(Conflict):
    """That session does not take this any more, or not yet."""


class NotAClerk(PermissionDenied):
    """The device has no part in that sum, or no seat in its committee."""


class ConflictingCommit(Conflict):
    """The survivors are others than those the clerk speaks of, or it has said something else before."""


class BadCommit(Unprocessable):
    """The clerk's signature of the survivors, or of its offer, is not its own."""


class BadAnswer(Unprocessable):
    """The clerk's answer is not whole, not signed by it, or not what it signed."""


class TooFewClerks(Conflict):
    """Too few owners to form a committee of clerks."""


class UnknownSum(NotFound):
    """The task has no such sum."""
