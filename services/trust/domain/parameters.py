"""The parameters of trust. [SCFL] "Social-Aware Clustered Federated Learning", §III-B.

Only ω = 0.8 has a published value; the other defaults are the platform's. `NEUTRAL` leaves each of them out of the
formula, for keys that a what-if question omits. `EvidenceRule` holds a live registry's further conditions on reports
(spec §1.3a); what-if and reproduction do not use it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from services.kit.errors import InvalidInput
from services.trust.domain.graph import Paths

DAY_SECONDS = 86_400.0


class InvalidTrustParameters(InvalidInput):
    """A trust parameter outside its range."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidTrustParameters(message)


@dataclass(frozen=True, slots=True)
class TrustParameters:
    """Parameters of direct and combined trust.

    decay_rate: ξ ≥ 0, per second. Default: evidence halves in 30 days; a device silent for three months loses its
        place, while a week's absence costs 15 %.
    penalty: ν > 0, weight of a bad interaction against a good one. Default 2: a pair's trust is positive only while
        more than two thirds of its recent history is good.
    full_duration_seconds: D > 0, an interaction this long counts fully, a shorter one in proportion. Default 60 s.
    direct_weight: ω in [0, 1], share of direct trust in the combined one. Default 0.8 [SCFL] §VI.
    paths: which path carries indirect trust. Default the paper's, the best of the shortest.

    Stored sums (`evidence.py`) depend on ξ and D, whose changes require a replay of the history; ν, ω and the paths may
    change at any time.
    """

    decay_rate: float = math.log(2.0) / (30.0 * DAY_SECONDS)
    penalty: float = 2.0
    full_duration_seconds: float = 60.0
    direct_weight: float = 0.8
    paths: Paths = Paths.SHORTEST

    def __post_init__(self) -> None:
        _require(0 <= self.decay_rate < math.inf, f"decay_rate must be finite and ≥ 0, got {self.decay_rate}")
        _require(0 < self.penalty < math.inf, f"penalty must be finite and > 0, got {self.penalty}")
        full = self.full_duration_seconds
        _require(0 < full < math.inf, f"full_duration_seconds must be finite and > 0, got {full}")
        _require(0 <= self.direct_weight <= 1, f"direct_weight must lie in [0, 1], got {self.direct_weight}")


NEUTRAL = TrustParameters(decay_rate=0.0, penalty=1.0, full_duration_seconds=1.0)
"""No decay (ξ = 0), bad weighs as good (ν = 1), D = 1, the one threshold for which eq (1) as printed is consistent
(spec A1); ω = 0.8."""


@dataclass(frozen=True, slots=True)
class EvidenceRule:
    """What counts as evidence in a live registry, and how much; spec §1.3a.

    prior_weight: κ > 0, weight of the prior at 0, in meetings: few observations give little trust.
    witness_cap: in [0, 1), the highest direct trust that the platform's witness alone can give a pair.
    pair_day: units of each sign that count for a pair in one day (UTC), with a separate cap for witnessed good ones.
    reporter_day: negative units of one reporter that count in one day, the newest of them.
    meeting_window_seconds: largest difference between the two ends' times of one meeting.
    confirm_seconds: how long after a meeting its second report may arrive.

    A unit is one interaction of full duration.
    """

    prior_weight: float = 5.0
    witness_cap: float = 0.5
    pair_day: float = 8.0
    reporter_day: float = 100.0
    meeting_window_seconds: float = 600.0
    confirm_seconds: float = 7 * DAY_SECONDS

    def __post_init__(self) -> None:
        for name in ("prior_weight", "pair_day", "reporter_day"):
            value = getattr(self, name)
            _require(0 < value < math.inf, f"{name} must be finite and > 0, got {value}")
        for name in ("meeting_window_seconds", "confirm_seconds"):
            value = getattr(self, name)
            _require(0 <= value < math.inf, f"{name} must be finite and ≥ 0, got {value}")
        _require(0 <= self.witness_cap < 1, f"witness_cap must lie in [0, 1), got {self.witness_cap}")


LIVE = EvidenceRule()
"""The rule with the spec's values."""
