"""Laplace noise for pure ε-privacy of whatever has a bounded L1 sensitivity.

C. Dwork, F. McSherry, K. Nissim, A. Smith, "Calibrating Noise to Sensitivity in Private Data Analysis" (2006). The
scale of [BETTA]'s training rule is made from realised gradients and is no such guarantee; it lives with the mesh.
"""

from __future__ import annotations

import math

from coterie.privacy.preconditions import check_not_negative, check_positive


def laplace_scale(sensitivity: float, epsilon: float) -> float:
    """Scale Δ/ε (the deviation is √2 times that); infinite ε asks for no noise and gives 0."""
    return check_not_negative("sensitivity", sensitivity) / check_positive("epsilon", epsilon)


def laplace_epsilon(sensitivity: float, scale: float) -> float:
    """ε = Δ/scale, the inverse of `laplace_scale`; infinite without noise."""
    check_positive("sensitivity", sensitivity)
    return math.inf if check_not_negative("scale", scale) == 0.0 else sensitivity / scale
