"""Explanations in words."""

from __future__ import annotations

from dataclasses import replace

from services.trust.domain.evidence import Evidence
from services.trust.domain.explanations import Reasons, explain
from services.trust.domain.parameters import DAY_SECONDS, LIVE, NEUTRAL, TrustParameters

NEIGHBOURS = Reasons(
    name_a="cam",
    name_b="phone",
    evidence=Evidence(12, 10, 9.0, 1.0, 9.0, 1.0, reference_time=1_000.0),
    unconfirmed=0,
    at=1_000.0 + 3 * DAY_SECONDS,
    direct=0.58,
    indirect=0.58,
    trust=0.58,
    hops=(0.58,),
    hidden=0,
    relations=("both belong to Ada",),
)


def test_explanation_of_neighbours_has_counts_decay_relations() -> None:
    assert explain(NEIGHBOURS, TrustParameters(), LIVE) == (
        "cam and phone trust each other 0.580 (0 = not at all, 1 = fully). "
        "They interacted 12 times, 10 well and 2 badly, last 3 days earlier; a bad one weighs 2 times a good one, not "
        "knowing weighs 5 meetings, and evidence halves every 30 days: direct trust is 0.580. "
        "They are direct neighbours, so trust is direct trust. "
        "Related: both belong to Ada."
    )


def test_a_chain_shows_each_hop_unless_some_are_hidden() -> None:
    chain = replace(
        NEIGHBOURS, evidence=Evidence(), direct=0.0, indirect=0.4, trust=0.08, hops=(0.8, 0.5), relations=()
    )
    text = explain(chain, NEUTRAL, LIVE)
    assert "They have not interacted, so direct trust is 0." in text
    assert "chain has 0.800 × 0.500, which gives indirect trust 0.400." in text
    secret = explain(replace(chain, hidden=1), NEUTRAL, LIVE)
    assert "0.500" not in secret
    assert "2 ties (1 of them not shared with you)" in secret


def test_strangers_and_lost_trust_are_said_plainly() -> None:
    stranger = replace(NEIGHBOURS, evidence=Evidence(), direct=0.0, indirect=0.0, trust=0.0, hops=())
    assert "No chain of trust connects them." in explain(stranger, NEUTRAL, LIVE)
    lost = replace(NEIGHBOURS, direct=0.0, indirect=0.0, trust=0.0, hops=())
    text = explain(lost, NEUTRAL, LIVE)
    assert "the bad outweighs the good and direct trust is 0" in text
    assert "evidence does not fade" in text


def test_what_waits_and_what_the_platform_alone_saw_is_said() -> None:
    alone = replace(NEIGHBOURS, evidence=replace(NEIGHBOURS.evidence, witnessed=9.0), unconfirmed=3)
    text = explain(alone, NEUTRAL, LIVE)
    assert "The platform alone saw the good, which lifts it to 0.5 at most." in text
    assert "3 good interactions count when the other end reports them too." in text
    assert "platform" not in explain(NEIGHBOURS, NEUTRAL, LIVE)
