"""Why two devices trust each other as they do, as a paragraph for people."""

from __future__ import annotations

import math
from dataclasses import dataclass

from services.trust.domain.evidence import Evidence
from services.trust.domain.graph import Paths
from services.trust.domain.parameters import DAY_SECONDS, EvidenceRule, TrustParameters


@dataclass(frozen=True, slots=True)
class Reasons:
    """The content of an explanation. `hops` are all hops of the indirect path, `hidden` how many are not shown."""

    name_a: str
    name_b: str
    evidence: Evidence
    unconfirmed: int
    at: float
    direct: float
    indirect: float
    trust: float
    hops: tuple[float, ...]
    hidden: int
    relations: tuple[str, ...]


def explain(reasons: Reasons, parameters: TrustParameters, rule: EvidenceRule) -> str:
    """One paragraph: the verdict, the evidence and its decay, what waits, the path, the relations."""
    return " ".join(
        part
        for part in (
            f"{reasons.name_a} and {reasons.name_b} trust each other {reasons.trust:.3f} (0 = not at all, 1 = fully).",
            _direct(reasons, parameters, rule),
            _waiting(reasons),
            _indirect(reasons, parameters.paths),
            _relations(reasons),
        )
        if part
    )


def _direct(reasons: Reasons, parameters: TrustParameters, rule: EvidenceRule) -> str:
    evidence = reasons.evidence
    count, good = evidence.count, evidence.good
    if not count and evidence.weight:
        return (
            f"They have not interacted; the pair begins with their owners' record: direct trust {reasons.direct:.3f}."
        )
    if not count and reasons.direct:
        return f"They have not interacted; their relations alone are worth direct trust {reasons.direct:.3f}."
    if not count:
        return "They have not interacted, so direct trust is 0."
    age = max(0.0, reasons.at - reasons.evidence.reference_time)
    fading = "evidence does not fade"
    if parameters.decay_rate:
        fading = f"evidence halves every {math.log(2) / parameters.decay_rate / DAY_SECONDS:.3g} days"
    verdict = f"direct trust is {reasons.direct:.3f}"
    if not reasons.direct:
        verdict = "the bad outweighs the good and direct trust is 0"
    alone = ""
    if evidence.witnessed and evidence.witnessed >= evidence.positive * (1 - 1e-9):
        alone = f" The platform alone saw the good, which lifts it to {rule.witness_cap:g} at most."
    return (
        f"They interacted {count} times, {good} well and {count - good} badly, last {_span(age)} earlier; a bad one "
        f"weighs {parameters.penalty:g} times a good one, not knowing weighs {rule.prior_weight:g} meetings, and "
        f"{fading}: {verdict}.{alone}"
    )


def _waiting(reasons: Reasons) -> str:
    if not reasons.unconfirmed:
        return ""
    return f"{reasons.unconfirmed} good interactions count when the other end reports them too."


def _indirect(reasons: Reasons, paths: Paths) -> str:
    if not reasons.hops:
        return "No chain of trust connects them."
    if len(reasons.hops) == 1:
        return "They are direct neighbours, so trust is direct trust."
    chain = " × ".join(f"{hop:.3f}" for hop in reasons.hops) if not reasons.hidden else f"{len(reasons.hops)} ties"
    secret = f" ({reasons.hidden} of them not shared with you)" if reasons.hidden else ""
    sort = "shortest chain" if paths is Paths.SHORTEST else "chain of up to three"
    return f"The best {sort} has {chain}{secret}, which gives indirect trust {reasons.indirect:.3f}."


def _relations(reasons: Reasons) -> str:
    return f"Related: {'; '.join(reasons.relations)}." if reasons.relations else ""


def _span(seconds: float) -> str:
    for size, name in ((DAY_SECONDS, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
