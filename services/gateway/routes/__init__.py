"""Routes by noun, the busiest first: they are matched in this order."""

from __future__ import annotations

from services.gateway.routes import (
    accounts,
    audit,
    cells,
    devices,
    enrolments,
    health,
    imports,
    interactions,
    keys,
    letters,
    me,
    models,
    owners,
    payments,
    privacy,
    tasks,
    trust,
    updates,
    whatif,
    work,
)

FAMILIES = (
    work,
    devices,
    updates,
    letters,
    models,
    me,
    health,
    enrolments,
    tasks,
    interactions,
    trust,
    imports,
    owners,
    keys,
    accounts,
    payments,
    privacy,
    cells,
    audit,
    whatif,
)
