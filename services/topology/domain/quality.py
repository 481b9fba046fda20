"""Decides how good a device's model will be from the noise it adds and how unlike the others its data are. [SCFL]
"Social-Aware Clustered Federated Learning", §IV-C, eqs (9), (11), (13), (14).

Trust α to the cluster's head buys a privacy budget ε(α), the budget a noise multiplier σ, the noise a loss and the loss
a quality q. Everything here is elementwise on arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from coterie.parameters.privacy import TrustPrivacy
from coterie.parameters.topology import ClusterParameters
from coterie.privacy import gaussian
from services.kit.errors import InvalidInput

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Calibration = Literal["paper", "exact"]

TRUST_TOLERANCE = 1e-12
"""Trust this close below the threshold counts as reaching it (spec A6: 0.8·0.7 + 0.2·0.7 need not equal 0.7)."""
_TRUST, _CLUSTERS = TrustPrivacy(), ClusterParameters()


class InvalidQualityModel(InvalidInput):
    """A constant of the quality model outside its range, or measurements that cannot determine one."""


@dataclass(frozen=True, slots=True)
class QualityModel:
    """Constants of noise and quality; the defaults are [SCFL] §VI (MNIST).

    trust_threshold: α_th, trust from which updates go to the head raw.
    budget_scale, budget_shift: θ1, θ2 of ε(α), eq (11).
    failure_probability: δ of the Gaussian mechanism.
    noise_max: σ_max, the multiplier of a device alone (0.6 MNIST, 0.3 CIFAR-10); noise never exceeds it.
    loss_fit: μ1..μ5 of eq (13), all ≥ 0 with μ3 > 0.
    quality_offset, quality_slope: κ2, κ1 of eq (14), in percent of accuracy.
    calibration: "paper" is eq (9), proved for ε ≤ 1 only; "exact" keeps the claimed δ at every ε.
    """

    trust_threshold: float = _TRUST.trust_threshold
    budget_scale: float = _CLUSTERS.budget_scale
    budget_shift: float = _CLUSTERS.budget_shift
    failure_probability: float = _TRUST.delta
    noise_max: float = _TRUST.noise_max
    loss_fit: tuple[float, float, float, float, float] = _CLUSTERS.loss_fit
    quality_offset: float = _CLUSTERS.quality_offset
    quality_slope: float = _CLUSTERS.quality_slope
    calibration: Calibration = "paper"

    def __post_init__(self) -> None:
        _require(0 <= self.trust_threshold <= 1, f"trust_threshold must lie in [0, 1], not {self.trust_threshold}")
        _require(0 < self.budget_scale < math.inf, f"budget_scale must be finite and > 0, not {self.budget_scale}")
        _require(0 < self.budget_shift < math.inf, f"budget_shift must be finite and > 0, not {self.budget_shift}")
        delta = self.failure_probability
        _require(0 < delta < 1, f"failure_probability must lie in (0, 1), not {delta}")
        _require(0 <= self.noise_max < math.inf, f"noise_max must be finite and ≥ 0, not {self.noise_max}")
        _require(len(self.loss_fit) == 5, f"loss_fit needs five numbers, not {len(self.loss_fit)}")
        finite = all(0 <= number < math.inf for number in self.loss_fit)
        _require(finite and self.loss_fit[2] > 0, f"loss_fit must be finite and ≥ 0 with μ3 > 0, not {self.loss_fit}")
        _require(0 <= self.quality_slope < math.inf, f"quality_slope must be finite and ≥ 0, not {self.quality_slope}")
        _require(self.calibration in ("paper", "exact"), f"calibration must be paper or exact, not {self.calibration}")
        worst = self.quality_offset - self.quality_slope * self.largest_loss
        _require(
            worst > 0, f"the quality at noise_max = {self.noise_max} would be {worst:.4g}; payoffs need it above 0"
        )

    @property
    def largest_loss(self) -> float:
        """Loss at σ_max and γ = 0: no device does worse."""
        mu1, _, mu3, mu4, mu5 = self.loss_fit
        return mu1 / (mu3 + math.exp(-mu4 * self.noise_max)) + mu5

    def budget(self, trust: npt.ArrayLike) -> Floats:
        """ε(α) = θ1 α/(α + θ2): increasing and saturating, 0 for a stranger. [SCFL] eq (11)."""
        alpha = np.asarray(trust, dtype=np.float64)
        return np.asarray(self.budget_scale * alpha / (alpha + self.budget_shift))

    def multiplier(self, budget: npt.ArrayLike) -> Floats:
        """σ(ε) by the chosen calibration, ε > 0, before clipping at σ_max. [SCFL] eq (9), spec A21."""
        epsilon = np.asarray(budget, dtype=np.float64)
        if self.calibration == "exact":
            return gaussian.exact_multipliers(epsilon, self.failure_probability)
        return np.asarray(gaussian.paper_multiplier(1.0, self.failure_probability) / epsilon)

    def noise(self, trust: npt.ArrayLike) -> Floats:
        """σ of a member of a cluster of two or more with trust α to its head (the head trusts itself: α = 1).

        0 from the threshold on, σ_max for a stranger, min(σ_max, σ(ε(α))) between. Unlike [SCFL], whose Algorithm 1
        read literally gives σ = 0 to every 0 < α < α_th, the cases exclude each other (spec A18).
        """
        alpha = np.asarray(trust, dtype=np.float64)
        sigma = np.where(alpha >= self.trust_threshold - TRUST_TOLERANCE, 0.0, self.noise_max)
        between = (alpha > 0) & (alpha < self.trust_threshold - TRUST_TOLERANCE)
        sigma[between] = np.minimum(self.noise_max, self.multiplier(self.budget(alpha[between])))
        return sigma

    def loss(self, noise: npt.ArrayLike, non_iid: npt.ArrayLike) -> Floats:
        """μ1 e^{−μ2 γ}/(μ3 + e^{−μ4 σ}) + μ5, with γ the Dirichlet parameter of the device's data. [SCFL] eq (13)."""
        return _loss(self.loss_fit, np.asarray(noise, dtype=np.float64), np.asarray(non_iid, dtype=np.float64))

    def quality(self, noise: npt.ArrayLike, non_iid: npt.ArrayLike) -> Floats:
        """q = κ2 − κ1·loss, in percent of accuracy. [SCFL] eq (14)."""
        return np.asarray(self.quality_offset - self.quality_slope * self.loss(noise, non_iid))


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured run: noise multiplier σ, non-IID degree γ, final loss and accuracy in percent."""

    noise: float
    non_iid: float
    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Refit:
    """A model refitted to measured runs, with what it leaves unexplained (measured minus fitted, row by row)."""

    model: QualityModel
    loss_residuals: Floats
    accuracy_residuals: Floats

    @property
    def loss_rmse(self) -> float:
        """Root mean square of the loss residuals."""
        return float(np.sqrt(np.mean(self.loss_residuals**2)))

    @property
    def accuracy_rmse(self) -> float:
        """Root mean square of the accuracy residuals, in percent."""
        return float(np.sqrt(np.mean(self.accuracy_residuals**2)))


def refit(measured: Sequence[Measurement], model: QualityModel | None = None) -> Refit:
    """μ1..μ5 and κ1, κ2 by least squares from measured runs; every other constant stays as in `model`.

    The loss surface (13) is fitted with μ ≥ 0 by bounded non-linear least squares started from `model`, the line (14)
    by ordinary least squares of accuracy on *measured* loss with κ1 ≥ 0. At least five different (σ, γ) are needed for
    five constants, and two different losses for the line.
    """
    start = model or QualityModel()
    rows = np.array([(row.noise, row.non_iid, row.loss, row.accuracy) for row in measured], dtype=np.float64)
    _check_measured(rows)
    noise, non_iid, loss, accuracy = rows.T

    def residual(constants: Floats) -> Floats:
        return np.asarray(_loss(tuple(constants.tolist()), noise, non_iid) - loss)

    lower = np.array([0.0, 0.0, 1e-9, 0.0, 0.0])
    guess = np.maximum(np.array(start.loss_fit), lower + 1e-12)
    solution = least_squares(residual, guess, bounds=(lower, np.inf), x_scale=np.maximum(guess, 1e-3), max_nfev=20_000)
    slope, offset = np.polyfit(loss, accuracy, 1)
    _require(slope <= 0, f"accuracy must not rise with loss, but the measured slope is {slope:.4g}; check the rows")
    mu1, mu2, mu3, mu4, mu5 = solution.x.tolist()
    fit = (mu1, mu2, mu3, mu4, mu5)
    fitted = replace(start, loss_fit=fit, quality_offset=float(offset), quality_slope=float(-slope))
    return Refit(fitted, -residual(solution.x), accuracy - (offset + slope * loss))


def _loss(fit: tuple[float, ...], noise: Floats, non_iid: Floats) -> Floats:
    mu1, mu2, mu3, mu4, mu5 = fit
    return np.asarray(mu1 * np.exp(-mu2 * non_iid) / (mu3 + np.exp(-mu4 * noise)) + mu5)


def _check_measured(rows: Floats) -> None:
    _require(rows.ndim == 2 and len(rows) >= 5, f"a refit needs at least five runs, not {len(rows)}")
    _require(bool(np.isfinite(rows).all()), "every measured number must be finite")
    _require(bool((rows[:, :2] >= 0).all()), "measured noise and non-IID degree must be ≥ 0")
    places = len(np.unique(rows[:, :2], axis=0))
    _require(places >= 5, f"a refit needs runs at five different (noise, non_iid), not {places}")
    _require(len(np.unique(rows[:, 2])) >= 2, "a refit needs at least two different losses")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidQualityModel(message)
