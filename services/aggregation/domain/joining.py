"""Who may join a task: anybody, the devices of some owners, or some devices."""

from __future__ import annotations

import re
from collections.abc import Sequence

from coterie.records.enums import JoinBy
from services.aggregation.errors import BadTask

MAX_INVITED = 1_000
_FORMS = {JoinBy.OWNERS: ("own", "coterie owners list"), JoinBy.DEVICES: ("dev", "coterie device list")}


def check(join_by: JoinBy, invited: Sequence[str]) -> None:
    """Raises BadTask for an invitation that makes no sense."""
    if join_by is JoinBy.OPEN:
        if invited:
            raise BadTask('invited is for join_by "owners" or "devices"; leave it out of an open task')
        return
    if join_by not in _FORMS:
        raise BadTask(f'join_by must be "open", "owners" or "devices", not {str(join_by)!r}')
    if not invited:
        raise BadTask(f'join_by "{join_by}" needs the ids of {join_by} in invited, else nobody could join')
    if len(invited) > MAX_INVITED:
        raise BadTask(f"invited has {len(invited)} ids, at most {MAX_INVITED} are taken; invite owners instead")
    prefix, command = _FORMS[join_by]
    for item in invited:
        if not re.fullmatch(rf"{prefix}_[a-z0-9_]{{1,36}}", item):
            raise BadTask(f"invited: {item[:40]!r} is no id of {join_by}, which read {prefix}_…; see `{command}`")
    if len(set(invited)) < len(invited):
        raise BadTask("invited names somebody twice")


def may_join(join_by: JoinBy, invited: Sequence[str], device_id: str, owner_id: str) -> bool:
    """Whether a device of that owner may join."""
    if join_by is JoinBy.OPEN:
        return True
    return (owner_id if join_by is JoinBy.OWNERS else device_id) in invited
