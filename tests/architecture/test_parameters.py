"""Task parameters are declared in `coterie.parameters` and read from there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coterie.parameters.registry import AXIS, sections
from services.aggregation import strategies
from services.aggregation.domain.rules.axis import METHODS, OPTIMISERS, PRES
from services.aggregation.domain.rules.choice import TRUST

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "services").rglob("*.py"), *(ROOT / "clients").glob("*/src/**/*.py")]
BY_HAND = re.compile(r"""parameters(\.get\(|\[)\s*"(topology|privacy|pricing|rule|survey|sums|bounds|mode|offer)\"""")


def test_no_source_reads_a_section_by_hand() -> None:
    """Read it with its group: `TrustPrivacy.of(parameters).noise_max`."""
    result = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if BY_HAND.search(line)
    }
    assert result == set()


@pytest.mark.parametrize("axis", ["topology", "privacy", "incentive"])
def test_groups_are_read_by_choices_that_exist(axis: str) -> None:
    index = ("topology", "privacy", "incentive").index(axis)
    taken = {combination[index] for combination in strategies.combinations()}
    named = {c for s, kinds in sections().items() if AXIS.get(s) == axis for kind in kinds for c in kind.choices}
    assert named <= taken


def test_every_step_of_a_rule_has_its_group_or_none() -> None:
    steps = {TRUST, *PRES, *METHODS, *OPTIMISERS}
    named = {choice for kind in sections()["rule"] for choice in kind.choices}
    assert steps - named == {"mean", "median", "geometric-median"}
    assert named <= steps
