"""Combination: how a round's updates become models, and which of them do not count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from coterie.records.enums import Form, ParticipationState
from services.aggregation.domain.accumulator import Accumulator
from services.aggregation.domain.layout import Layout
from services.aggregation.domain.plausibility import usual_norm
from services.aggregation.domain.records import Participation
from services.aggregation.domain.rules.choice import choose
from services.aggregation.strategies.parts.delivery import SHORTER
from services.aggregation.strategies.parts.part import Part
from services.aggregation.strategies.roster import Roster

VISIBLE = (Form.MEAN, Form.SUM)
"""Forms of delivery whose content the platform sees."""


class Combination(Part):
    """Decisions made when a round closes."""

    def make_accumulator(self, layout: Layout, scale: int, participants: int) -> Accumulator:
        """Make the accumulator of one model's updates."""
        return Accumulator(layout, scale, participants)

    def rejections(self, participations: Sequence[Participation], bounds: Mapping[str, float]) -> dict[str, str]:
        """Delivered updates that do not count after all, with reasons; arrival order plays no part.

        An update is rejected when it is too long for this round and no earlier round set a bound (`bounds`), unless a
        robust rule judges it; or, in a rewarded task, when another device delivered the same bytes. Devices do not see
        each other's updates, so equal bytes show an agreement: all of their senders are rejected.
        """
        by_norm = (
            not self.terms.clips and choose(self.specification.rule, self.specification.parameters_json).is_bendable
        )
        seen = [p for p in participations if p.state is ParticipationState.DELIVERED and p.form in VISIBLE]
        rejected: dict[str, str] = {}
        for model in {p.model_index for p in seen} if by_norm else ():
            of_model = [p for p in seen if p.model_index == model]
            times = self.terms.bounds.norm_times
            most = bounds.get(str(model)) or times * usual_norm(p.norm for p in of_model)
            rejected |= {
                p.device_id: f"its norm of {p.norm:.4g} is beyond {most:.4g}, {times:g} times what is usual; {SHORTER}"
                for p in of_model
                if p.norm > most
            }
        holders = Counter(p.digest for p in seen) if self.terms.is_rewarded else Counter()
        copied = "its update is, to the last byte, that of another device; train on your own data"
        return rejected | {p.device_id: copied for p in seen if holders[p.digest] > 1}

    def next_norm_bounds(self, participations: Sequence[Participation]) -> dict[str, float]:
        """The longest update that the next round accepts, by model, from those accepted in this round."""
        norms: dict[str, list[float]] = {}
        for p in participations if not self.terms.clips else ():
            if p.state is ParticipationState.DELIVERED and p.norm > 0.0:
                norms.setdefault(str(p.model_index), []).append(p.norm)
        return {model: self.terms.bounds.norm_times * usual_norm(values) for model, values in norms.items()}

    def outcomes(self, roster: Roster, participations: Sequence[Participation]) -> list[Participation]:
        """The participations with their final states."""
        return list(participations)

    def metrics(self, participations: Sequence[Participation], sums: Mapping[int, Accumulator]) -> dict[str, float]:
        """Metrics of the round beside those of its models."""
        return {}

    def secure_metrics(self, participations: Sequence[Participation], total: Callable[[], float]) -> dict[str, float]:
        """`metrics` of secure sums; `total` is the first element of all of them together."""
        return {}

    def convergence_warnings(self, metrics: Mapping[str, float]) -> list[str]:
        """Known conditions for convergence that the round's metrics do not meet, as sentences."""
        return []

    def flagged(self, participations: Sequence[Participation], elements: int) -> dict[str, str]:
        """Delivered updates that count but stand out, with reasons for a person to review."""
        return {}
