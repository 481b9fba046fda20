"""How much noise trust leaves due: none from a threshold on, the largest where there is none. [SCFL] (9), (11)

[SCFL] Social-Aware Clustered Federated Learning. The planner says it of a member and its head; here it is said of what
only an open round knows: the clerks of a cluster's sum, and who is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coterie.parameters.privacy import TrustPrivacy
from coterie.parameters.topology import ClusterParameters
from coterie.privacy.gaussian import exact_multiplier, paper_multiplier

TOLERANCE = 1e-9
"""By how much trust may miss the threshold."""
_TRUST, _CLUSTERS = TrustPrivacy(), ClusterParameters()


@dataclass(frozen=True, slots=True)
class TrustNoise:
    """A task's terms of noise by trust; the defaults are the declared ones.

    Attributes
    ----------
    most : σ of a device alone, and of one without trust in any other.
    threshold : α_th, trust from which there is none.
    delta : δ of every release.
    calibration : "exact" when σ is the least there is for (ε, δ), else the paper's.
    scale, shift : θ1 and θ2 of ε(α) = θ1 α/(α + θ2).
    """

    most: float
    threshold: float = _TRUST.trust_threshold
    delta: float = _TRUST.delta
    calibration: str = _TRUST.calibration
    scale: float = _CLUSTERS.budget_scale
    shift: float = _CLUSTERS.budget_shift

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> TrustNoise:
        """From a task's parameters."""
        privacy, clusters = TrustPrivacy.of(parameters), ClusterParameters.of(parameters)
        return cls(
            most=privacy.noise_max,
            threshold=privacy.trust_threshold,
            delta=privacy.delta,
            calibration=privacy.calibration,
            scale=clusters.budget_scale,
            shift=clusters.budget_shift,
        )

    def multiplier(self, trust: float) -> float:
        """σ that trust α leaves due: that of ε(α), at most the largest."""
        if trust >= self.threshold - TOLERANCE:
            return 0.0
        if trust <= 0.0:
            return self.most
        epsilon = self.scale * trust / (trust + self.shift)
        exact = self.calibration == "exact"
        sigma = exact_multiplier(epsilon, self.delta) if exact else paper_multiplier(1.0, self.delta) / epsilon
        return min(self.most, sigma)
