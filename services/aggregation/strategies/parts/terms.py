"""What all parts of a strategy read of a task: bounds, rewards, secure-sum rules and clipping."""

from __future__ import annotations

import json
from functools import cached_property

from coterie.privacy.adaptive import WITHIN, AdaptiveClip, joint_norm
from services.aggregation.domain.bounds import Bounds
from services.aggregation.domain.records import Round
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.domain.tasks import TaskSpecification

CLIP = "clip_norm"
"""Key of the clip norm among a round's `norm_bounds`."""


class TaskTerms:
    """Facts of one task that several parts need."""

    def __init__(self, specification: TaskSpecification) -> None:
        self.specification = specification

    @property
    def bounds(self) -> Bounds:
        """How far the task believes its devices."""
        return Bounds.of(self.specification.parameters)

    @property
    def is_rewarded(self) -> bool:
        """Whether a delivery earns something, so that zeros and copies must not count."""
        return self.specification.incentive != "none"

    @property
    def sum_rules(self) -> SumRules:
        """Settings of the task's secure sums."""
        return SumRules.of(self.specification.parameters)

    # --- clipping ----------------------------------------------------------------------------------------------------

    @property
    def clips(self) -> bool:
        """Whether devices clip their updates; otherwise the platform bounds norms by the usual ones."""
        return self.specification.privacy != "none"

    @property
    def stores_norms(self) -> bool:
        """Whether the norm of a delivered update is stored."""
        return not self.clips

    @property
    def clip_norm(self) -> float:
        """The initial clip norm."""
        return float(self.specification.training.get("clip_norm", 1.0))

    @cached_property
    def adaptive_clip(self) -> AdaptiveClip | None:
        """The rule by which the clip norm follows the updates; None when it is constant."""
        return AdaptiveClip.of(self.specification.parameters) if self.specification.privacy == "uniform" else None

    def next_clip_norm(self, last: Round | None) -> float:
        """The clip norm of the round after `last`."""
        if self.adaptive_clip is None or last is None:
            return self.clip_norm
        before, within = last.norm_bounds.get(CLIP, self.clip_norm), last.metrics.get(WITHIN)
        return before if within is None else self.adaptive_clip.next(before, within, self.clip_norm)

    def next_clip_bound(self, last: Round | None) -> dict[str, float]:
        """The same as an entry of a round's `norm_bounds`; empty when the clip norm is constant."""
        return {} if self.adaptive_clip is None else {CLIP: self.next_clip_norm(last)}

    def clip_metrics(self, round_: Round) -> dict[str, float]:
        """The clip norm as a round metric; empty when it is constant."""
        return {} if self.adaptive_clip is None else {CLIP: round_.norm_bounds.get(CLIP, self.clip_norm)}

    def training_json(self, round_: Round) -> str:
        """The training object of a round's work items."""
        spec = self.specification
        if self.adaptive_clip is None or CLIP not in round_.norm_bounds:
            return spec.training_json
        return json.dumps({**spec.training, "clip_norm": round_.norm_bounds[CLIP]})

    def sum_norm(self, round_: Round) -> float:
        """The largest L2 norm of one device's vector in a secure sum, its clip count included."""
        if self.adaptive_clip is None:
            return self.clip_norm
        return joint_norm(round_.norm_bounds.get(CLIP, self.clip_norm))
