"""Who may join a task: any device, the devices of some owners, or some devices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from coterie.records.enums import JoinBy
from services.aggregation.errors import BadTask

MAX_INVITED = 1_000
_FORMS = {JoinBy.OWNERS: ("own", "coterie owners list"), JoinBy.DEVICES: ("dev", "coterie device list")}


def check(join_by: JoinBy, invited: Sequence[str]) -> None:
    """Raise BadTask for an invalid invitation."""
    if join_by is JoinBy.OPEN:
        if invited:
            raise BadTask('invited is for join_by "owners" or "devices"; leave it out of an open task')
        return
    if join_by not in _FORMS:
        raise BadTask(f'join_by must be "open", "owners" or "devices", not {str(join_by)!r}')
    if not invited:
        raise BadTask(f'join_by "{join_by}" needs the ids of {join_by} in invited, else no device can join')
    if len(invited) > MAX_INVITED:
        raise BadTask(f"invited has {len(invited)} ids, at most {MAX_INVITED} are taken; invite owners instead")
    prefix, command = _FORMS[join_by]
    for item in invited:
        if not re.fullmatch(rf"{prefix}_[a-z0-9_]{{1,36}}", item):
            raise BadTask(f"invited: {item[:40]!r} is not an id of {join_by} ({prefix}_…); see `{command}`")
    if repeated := [item for item, times in Counter(invited).items() if times > 1]:
        raise BadTask(f"invited names {repeated[0]} twice; name each of the {join_by} once")


def may_join(join_by: JoinBy, invited: Sequence[str], device_id: str, owner_id: str) -> bool:
    """Whether a device of that owner may join."""
    if join_by is JoinBy.OPEN:
        return True
    return (owner_id if join_by is JoinBy.OWNERS else device_id) in invited
