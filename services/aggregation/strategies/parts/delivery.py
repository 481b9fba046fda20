"""Delivery policy: which deliveries are accepted, with what weight, and how long an update may be."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from coterie.privacy.adaptive import WITHIN, farthest_share, joint_norm
from coterie.records.enums import Form
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.plausibility import noised_norm
from services.aggregation.domain.records import Delivery, Participation
from services.aggregation.errors import BadUpdate, MetricsNotTaken, RoundOver
from services.aggregation.strategies.parts.part import Part
from services.aggregation.strategies.roster import Roster, Update

SHORTER = (
    "lower the learning rate or scale the update down to that; where honest devices need longer ones, the publisher "
    "raises parameters.bounds.norm_times"
)
"""Advice about an update that is too long."""


class DeliveryPolicy(Part):
    """Decisions about one delivery."""

    form: ClassVar[Form] = Form.MEAN
    """The form of delivery that the strategy accepts."""

    def require_valid(self, roster: Roster, delivery: Delivery) -> None:
        """Refuse a form or a weight that the device may not use."""
        if delivery.form is not self.form:
            raise BadUpdate(f"this task takes deliveries of the form {self.form}, not {delivery.form}")
        samples = roster.samples.get(delivery.device_id, 0)
        if delivery.weight > samples and delivery.form is Form.MEAN:
            raise BadUpdate(f"weight {delivery.weight} is above the {samples} samples the device enrolled with")

    def require_public_metrics(self, metrics: Mapping[str, float], *, is_public: bool) -> None:
        """Refuse metrics of private data where the task promises noise, which would not cover them."""
        privacy = self.specification.privacy
        if privacy != "none" and metrics and not is_public:
            raise MetricsNotTaken(
                f"the task's privacy is {privacy}, and exact metrics of a device's data would bypass its noise: "
                "leave the metrics out, or measure them on samples the owner calls public (public_test_data=True) "
                "and report public_metrics"
            )

    def plan_mismatch(self, roster: Roster, message: str) -> BadUpdate | RoundOver:
        """The error for a delivery that does not fit the plan.

        In a reopened round the delivery may have fitted the earlier plan: the device asks for its new work instead.
        """
        return BadUpdate(message) if roster.attempt == 1 else RoundOver(f"{message}; ask for work again")

    def take_clip_share(self, roster: Roster, delivery: Delivery) -> dict[str, float]:
        """Return the delivery's metrics without the clip count; refuse a count that a bit and noise cannot make.

        The count is noised and charged with the update, so it needs no declaration as public.
        """
        others = {name: value for name, value in delivery.metrics.items() if name != WITHIN}
        if len(others) == len(delivery.metrics):
            return others
        within, noise = delivery.metrics[WITHIN], roster.items[delivery.device_id].noise_multiplier
        if self.terms.adaptive_clip is None:
            raise MetricsNotTaken(f"{WITHIN} is taken where the clip norm adapts (privacy.clip_quantile); leave it out")
        if abs(within - 0.5) > farthest_share(noise):
            raise BadUpdate(f"{WITHIN} is {within:.4g}, which is more than a bit and the promised noise make")
        return others

    def require_paid_budget(self, item: pb.WorkItem, budget: float) -> None:
        """Refuse a claimed budget that the round does not pay for."""

    def required_letters(self, roster: Roster, delivery: Delivery) -> tuple[str, Collection[str]]:
        """A recipient and the senders whose letters to it must be here before the delivery counts."""
        return "", ()

    # --- weight ------------------------------------------------------------------------------------------------------

    def weight(self, roster: Roster, delivery: Delivery) -> float:
        """The weight of a delivery: the samples it claims, up to the number that counts."""
        return min(delivery.weight, roster.counted[delivery.device_id])

    def batch_weights(self, roster: Roster, delivered: Sequence[Participation]) -> dict[str, float]:
        """Weights of deliveries that make an asynchronous step together; no owner's share is too large."""
        devices = [p.device_id for p in delivered]
        samples, owners = {d: roster.samples[d] for d in devices}, {d: roster.owners[d] for d in devices}
        counted = self.terms.bounds.counted(samples, owners)
        return {p.device_id: min(p.weight, counted[p.device_id]) for p in delivered}

    # --- content -----------------------------------------------------------------------------------------------------

    def inspect(self, update: Update) -> dict[str, float]:
        """Refuse an update by its content; return the platform's own measurements of it."""
        if self.terms.is_rewarded and update.norm == 0.0:
            raise BadUpdate("the update is zero everywhere; train before you deliver")
        limit = self.norm_limit(update)
        if update.norm > limit:
            reason = self.norm_limit_reason(update)
            raise BadUpdate(f"the update's norm of {update.norm:.4g} is beyond the {limit:.4g} that {reason}")
        if not self.terms.clips and update.norm > update.bound:
            raise BadUpdate(
                f"the update's norm of {update.norm:.4g} is beyond {update.bound:.4g}, "
                f"{self.terms.bounds.norm_times:g} times what was usual in the last round; {SHORTER}"
            )
        return {}

    def norm_limit(self, update: Update) -> float:
        """The largest norm of an honest update: clipping plus the noise that the plan asks for."""
        if not self.terms.clips:
            return math.inf
        clip_norm = self.terms.clip_norm
        if self.terms.adaptive_clip is not None:
            clip_norm = joint_norm(float(json.loads(update.item.training_json)["clip_norm"]))
        return noised_norm(clip_norm, update.item.noise_multiplier, update.elements)

    def norm_limit_reason(self, update: Update) -> str:
        """The end of the sentence "the norm is beyond the limit that …"."""
        return f"clipping to {self.terms.clip_norm:g} and the promised noise allow"
