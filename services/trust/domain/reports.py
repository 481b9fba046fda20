"""Validation of a batch of reported interactions, with the fault of each bad one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from services.kit.errors import CoterieError
from services.trust.domain.graph import Integers
from services.trust.errors import ForeignInteractions, InvalidInteractions

PLATFORM = "platform"
MOST_INTERACTIONS = 10_000
ALLOWED_SKEW_SECONDS = 300.0
_LATEST = 4e9  # the year 2096: later times are milliseconds by mistake
# Errors travel in gRPC's trailing metadata, which holds 8 kB.
_MOST_REASONS = 10
_MOST_INDEX_CHARACTERS = 3_000


@dataclass(frozen=True, slots=True)
class Reports:
    """Reported interactions, column by column; devices by id."""

    ids: list[str]
    devices_a: list[str]
    devices_b: list[str]
    positive: list[bool]
    durations_seconds: list[float]
    at: list[float]
    reporters: list[str]
    kinds: list[str]
    notes: list[str]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Numbered:
    """The devices of a batch by number, lower number first."""

    low: Integers
    high: Integers


def check(
    reports: Reports, numbers: Mapping[str, int], reporter: str, now: float, lines: Sequence[int] | None = None
) -> Numbered:
    """Return the devices' numbers if every report is valid; otherwise raise an error with the index of each bad one.

    numbers: of the existing devices. reporter: the reporting device, or "platform". lines: places of the reports in a
    file, which the error then names instead of indices in the batch.
    """
    a = np.array([numbers.get(item, -1) for item in reports.devices_a], dtype=np.int64)
    b = np.array([numbers.get(item, -1) for item in reports.devices_b], dtype=np.int64)
    foreign = _foreign(reports, reporter)
    if foreign:
        raise _refusal(ForeignInteractions, foreign, len(reports), lines)
    bad = {**_bad_texts(reports), **_bad_figures(reports, now), **_bad_devices(reports, a, b)}
    if bad:
        raise _refusal(InvalidInteractions, bad, len(reports), lines)
    return Numbered(np.minimum(a, b), np.maximum(a, b))


def _foreign(reports: Reports, reporter: str) -> dict[int, str]:
    bad = {
        k: f"reporter {given[:40]!r} is not the caller {reporter}"
        for k, given in enumerate(reports.reporters)
        if given not in ("", reporter)
    }
    if reporter != PLATFORM:
        ends = zip(reports.devices_a, reports.devices_b, strict=True)
        bad |= {k: f"{reporter} is not part of it" for k, pair in enumerate(ends) if reporter not in pair}
    return bad


def _bad_devices(reports: Reports, a: Integers, b: Integers) -> dict[int, str]:
    bad = {int(k): f"{reports.devices_a[k]!r} with itself" for k in np.flatnonzero(a == b)}
    for devices, numbers in ((reports.devices_a, a), (reports.devices_b, b)):
        bad |= {int(k): f"unknown device {devices[k][:40]!r}" for k in np.flatnonzero(numbers < 0)}
    return bad


def _bad_figures(reports: Reports, now: float) -> dict[int, str]:
    durations, times = np.array(reports.durations_seconds), np.array(reports.at)
    long = ~((durations >= 0) & (durations < np.inf))
    bad = {int(k): f"duration_seconds {durations[k]} must be finite and not negative" for k in np.flatnonzero(long)}
    odd = ~((times >= 0) & (times <= _LATEST))
    bad |= {int(k): f"at {times[k]} must be Unix seconds" for k in np.flatnonzero(odd)}
    early = ~odd & (times > now + ALLOWED_SKEW_SECONDS)
    bad |= {int(k): f"at lies {times[k] - now:.0f} s in the future; check the clock" for k in np.flatnonzero(early)}
    return bad


def _bad_texts(reports: Reports) -> dict[int, str]:
    bad: dict[int, str] = {}
    for field, values, least, most in (
        ("note", reports.notes, 0, 500),
        ("kind", reports.kinds, 0, 50),
        ("id", reports.ids, 1, 100),
    ):
        unsound = {item for item in set(values) if not (least <= len(item) <= most and item.isprintable())}
        if unsound:
            reason = f"{field} must be {least} to {most} printable characters"
            bad |= {k: reason for k, item in enumerate(values) if item in unsound}
    if len(set(reports.ids)) < len(reports.ids):
        again = {item for item, times in Counter(reports.ids).items() if times > 1}
        seen: set[str] = set()
        for k, item in enumerate(reports.ids):
            if item in seen:
                bad.setdefault(k, f"id {item[:40]!r} occurs twice in the batch")
            elif item in again:
                seen.add(item)
    return bad


def _refusal(
    error: type[CoterieError], faults: Mapping[int, str], size: int, lines: Sequence[int] | None
) -> CoterieError:
    bad = faults if lines is None else {lines[k]: reason for k, reason in faults.items()}
    places = sorted(bad)
    sort = "[{}]" if lines is None else "line {}:"
    first_faults = [f"{sort.format(k)} {bad[k][:120]}" for k in places[:3]]
    more = f"; and {len(places) - 3} more" if len(places) > 3 else ""
    return error(
        f"{len(places)} of {size} interactions are bad, so none was recorded; correct these and send the batch "
        f"again: {'; '.join(first_faults)}{more}",
        details={
            "indices" if lines is None else "lines": _spans(places),
            **{str(k): bad[k][:120] for k in places[:_MOST_REASONS]},
        },
    )


def _spans(indices: list[int]) -> str:
    """Format ascending indices as `0-3,7`; "…" ends a list too long to send."""
    spans: list[list[int]] = []
    for k in indices:
        if spans and k == spans[-1][1] + 1:
            spans[-1][1] = k
        else:
            spans.append([k, k])
    text: list[str] = []
    length = 0
    for low, high in spans:
        span = str(low) if low == high else f"{low}-{high}"
        length += len(span) + 1
        if length > _MOST_INDEX_CHARACTERS:
            return ",".join([*text, "…"])
        text.append(span)
    return ",".join(text)
