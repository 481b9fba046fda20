"""The evidence rule of spec §1.3a by hand: plain loops over the whole history, without running sums.

Independent of the code it checks: no arrays, no sums that age, no stored shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.trust.domain.parameters import DAY_SECONDS, EvidenceRule, TrustParameters
from services.trust.domain.scores import Interaction

PLATFORM, ADMIN, ONE, OTHER = "platform", "admin", "one", "other"
"""Who reports: the platform, an admin, or either end of a pair."""


@dataclass
class Report:
    """One report about one pair."""

    reporter: str
    positive: bool
    duration_seconds: float
    at: float
    pair: int = 0


@dataclass
class Piece:
    """A piece of evidence that counts for `share`."""

    pair: int
    positive: bool
    units: float
    at: float
    reporter: str
    share: float = 1.0


@dataclass
class Court:
    """Hears reports one after the other."""

    parameters: TrustParameters
    rule: EvidenceRule
    waiting: list[Report] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    def hear(self, report: Report) -> None:
        """One report of an end, an admin or the platform."""
        if report.positive and report.reporter in (ONE, OTHER):
            near = [
                one
                for one in self.waiting
                if one.pair == report.pair
                and one.reporter != report.reporter
                and abs(one.at - report.at) <= self.rule.meeting_window_seconds
            ]
            if not near:
                self.waiting.append(report)
                return
            half = min(near, key=lambda one: abs(one.at - report.at))  # the first of equally near ones
            self.waiting.remove(half)
            shorter = min(half.duration_seconds, report.duration_seconds)
            report = Report("both", True, shorter, min(half.at, report.at), report.pair)
        self._count(report)

    def _count(self, report: Report) -> None:
        full = self.parameters.full_duration_seconds
        piece = Piece(
            report.pair, report.positive, min(report.duration_seconds, full) / full, report.at, report.reporter
        )
        same = [
            p for p in self.pieces if p.pair == report.pair and p.positive == piece.positive and _day(p) == _day(piece)
        ]
        if piece.positive:
            same = [p for p in same if (p.reporter == PLATFORM) == (piece.reporter == PLATFORM)]
        elif piece.reporter in (ONE, OTHER):
            own = [p for p in same if p.reporter == piece.reporter and p.share > 0]
            if len(own) >= 10 * self.rule.pair_day:
                return
        room = self.rule.pair_day - math.fsum(p.share * p.units for p in same)
        piece.share = min(1.0, max(0.0, room) / piece.units) if piece.units else float(room > 0)
        self.pieces.append(piece)
        if not piece.positive and piece.reporter in (ONE, OTHER):
            self._displace(piece)

    def _displace(self, newest: Piece) -> None:
        """From the newest bad report of this reporter and day back, as many as fit."""
        own = [
            p
            for p in self.pieces
            if not p.positive and p.reporter == newest.reporter and _day(p) == _day(newest) and p.share > 0
        ]
        total = 0.0
        for _, p in sorted(enumerate(own), key=lambda item: (-item[1].at, -item[0])):
            total += p.share * p.units
            if total > self.rule.reporter_day * (1 + 1e-12):
                p.share = 0.0

    def trust(self, now: float, pair: int = 0) -> float:
        """Direct trust of a pair: the formula over every piece, and over those the platform did not witness."""
        own = [p for p in self.pieces if p.pair == pair]
        earned = [p for p in own if not (p.positive and p.reporter == PLATFORM)]
        cap = self.rule.witness_cap
        most = cap + (1 - cap) * min(1.0, max(0.0, self._ratio(earned, now)))
        return max(0.0, min(self._ratio(own, now), most))

    def _ratio(self, pieces: list[Piece], now: float) -> float:
        age = [math.exp(-self.parameters.decay_rate * (now - p.at)) for p in pieces]
        signed = [p.units if p.positive else -self.parameters.penalty * p.units for p in pieces]
        above = math.fsum(p.share * w * a for p, w, a in zip(pieces, signed, age, strict=True))
        below = math.fsum(p.share * a for p, a in zip(pieces, age, strict=True))
        return above / (below + self.rule.prior_weight)


def _day(piece: Piece) -> int:
    return math.floor(piece.at / DAY_SECONDS)


def vouched_trust(history: Iterable[Interaction], now: float, parameters: TrustParameters, rule: EvidenceRule) -> float:
    """Direct trust of a pair whose whole history an admin imported, in this order."""
    court = Court(parameters, rule)
    for one in history:
        court.hear(Report(ADMIN, one.positive, one.duration_seconds, one.at))
    return court.trust(now)
