"""Parameters that do not depend on one axis: what a survey asks, secure sums, bounds, asynchronous rounds, offers."""

from __future__ import annotations

from typing import Literal

from coterie.parameters.declaration import ParameterGroup, parameter, parameter_group

MOST_SECONDS = 7 * 86_400.0
"""Longest patience with a committee, which deletes its keys after eight days."""
LEAST_COHORT = 5


@parameter_group("survey", "correlated")
class SurveyParameters(ParameterGroup):
    """What a survey asks."""

    question: str = parameter(min_length=1, max_length=500, title="Question", help="What is asked.")
    low: float = parameter(title="Lowest answer", help="Least answer.")
    high: float = parameter(title="Highest answer", help="Largest answer.")

    def requirements(self) -> None:
        if self.low >= self.high:
            raise ValueError(f"low {self.low:g} must be below high {self.high:g}; change one of them")


@parameter_group("sums")
class SumsParameters(ParameterGroup):
    """Whether updates go into secure sums, and who opens them."""

    mode: Literal["clear", "secure"] = parameter(
        default="clear", title="Sums", help="Secure sums need at least four owners who know each other."
    )
    clerks: int = parameter(default=4, at_least=2, at_most=2**31, help="m, members of a sum's committee.")
    threshold: int = parameter(
        default=2, at_least=2, at_most=2**31, help="t, clerks that must work together to open a sum."
    )
    colluders: int | None = parameter(
        default=None,
        at_least=0,
        at_most=2**31,
        help="Participants, clerks among them, assumed to work with the platform; left out, a tenth.",
    )
    offer_seconds: float = parameter(
        default=30.0, above=0, at_most=MOST_SECONDS, help="Longest wait for key offers.", unit="seconds"
    )
    clerk_seconds: float | None = parameter(
        default=None,
        above=0,
        at_most=MOST_SECONDS,
        help="Longest wait for unmasking; left out, half a round and at least a minute.",
        unit="seconds",
    )
    cohort_devices: int = parameter(
        default=0,
        at_least=0,
        at_most=2**31,
        title="Devices in one sum",
        help="0 means all of a round in one; otherwise at least 5.",
    )
    unchecked: bool = parameter(
        default=True, help="Accept a sum although fewer than t clerks agree on some share of its mask."
    )
    unverified_claims: bool = parameter(
        default=False, help="Accept budgets that cannot be verified in a secure sum (market)."
    )

    def requirements(self) -> None:
        if 0 < self.cohort_devices < LEAST_COHORT:
            raise ValueError(
                f"cohort_devices must be 0 or at least {LEAST_COHORT}, not {self.cohort_devices}; "
                "change it or leave it out"
            )


@parameter_group("bounds")
class BoundsParameters(ParameterGroup):
    """How far a round trusts what its devices claim."""

    largest_share: float = parameter(
        default=0.25,
        above=0,
        at_most=1,
        help="Largest share of a round's weight for one device, or for one owner's devices together.",
    )
    norm_times: float = parameter(
        default=10.0,
        at_least=2,
        help="Reject an update longer than this many times the median, where the task does not clip.",
    )


@parameter_group("asynchronous", "asynchronous")
class AsynchronousParameters(ParameterGroup):
    """How arrivals become steps of an asynchronous task."""

    buffer: int | None = parameter(
        default=None,
        at_least=1,
        at_most=1_000_000,
        title="Updates that make a step",
        help="At most min_devices, which is the default.",
    )
    staleness_exponent: float = parameter(
        default=0.5,
        at_least=0,
        at_most=10,
        help="a: an update τ versions behind counts (1 + τ)^−a as much as a fresh one.",
    )
    staleness_limit: int = parameter(
        default=20, at_least=0, at_most=1_000_000, help="Versions an update may be behind.", unit="versions"
    )


@parameter_group("offer")
class OfferParameters(ParameterGroup):
    """What a selling device decides by, besides its price; the platform writes it into the device's work."""

    expected: float = parameter(default=0.0, help="Noise variance or zCDP budget the platform expects.")
    most_microcredits: int | None = parameter(default=None, help="Most the device can earn this round.")
    others_variance: float | None = parameter(default=None, help="Noise variance expected of the others together.")
    variance_low: float = parameter(default=0.0, help="Least variance it may choose.")
    variance_high: float = parameter(default=0.0, help="Largest variance it may choose.")
    trust: tuple[float, ...] = parameter(default=(), help="Trust in itself, which is 1, then in each of its ties.")
    hidden: tuple[float, ...] = parameter(default=(), help="Variance that hides each of them.")
