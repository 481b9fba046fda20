"""What a strategy decides about the norm its devices clip to; unless it says otherwise, as a star does."""

from __future__ import annotations

import json
from functools import cached_property

from coterie.privacy.adaptive import WITHIN, AdaptiveClip, joint_norm
from services.aggregation.domain.records import Round
from services.aggregation.domain.tasks import TaskSpecification

CLIP = "clip_norm"
"""Where a round keeps the norm its devices clip to, among its `norm_bounds`."""


class Clipping:
    """Clipping in one strategy."""

    specification: TaskSpecification

    @property
    def clips(self) -> bool:
        """Whether devices clip what they deliver; if not, the platform goes by what is usual."""
        return self.specification.privacy != "none"

    @property
    def keeps_norms(self) -> bool:
        """Whether the norm of what a device delivers is kept."""
        return not self.clips

    @property
    def clip_norm(self) -> float:
        """The norm devices clip to."""
        return float(self.specification.training.get("clip_norm", 1.0))

    @cached_property
    def adaptive_clip(self) -> AdaptiveClip | None:
        """How the clip norm follows the updates; None where it stays."""
        return AdaptiveClip.of(self.specification.parameters) if self.specification.privacy == "uniform" else None

    def clip_of(self, last: Round | None) -> float:
        """The norm devices clip to in the round after `last`."""
        if self.adaptive_clip is None or last is None:
            return self.clip_norm
        before, within = last.norm_bounds.get(CLIP, self.clip_norm), last.metrics.get(WITHIN)
        return before if within is None else self.adaptive_clip.next(before, within, self.clip_norm)

    def clip_bound(self, last: Round | None) -> dict[str, float]:
        """The same among the bounds of norms that a round keeps, where it adapts."""
        return {} if self.adaptive_clip is None else {CLIP: self.clip_of(last)}

    def clip_told(self, round_: Round) -> dict[str, float]:
        """The clip norm among a round's figures, where it adapts."""
        return {} if self.adaptive_clip is None else {CLIP: round_.norm_bounds.get(CLIP, self.clip_norm)}

    def training_json(self, round_: Round) -> str:
        """What devices are told about training in a round."""
        spec = self.specification
        if self.adaptive_clip is None or CLIP not in round_.norm_bounds:
            return spec.training_json
        return json.dumps({**spec.training, "clip_norm": round_.norm_bounds[CLIP]})

    def sum_norm(self, round_: Round) -> float:
        """The L2 norm that one device's vector has at most in a secure sum of a round, its count included."""
        if self.adaptive_clip is None:
            return self.clip_norm
        return joint_norm(round_.norm_bounds.get(CLIP, self.clip_norm))
