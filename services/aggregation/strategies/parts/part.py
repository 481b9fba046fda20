"""The base of all parts."""

from __future__ import annotations

from services.aggregation.strategies.parts.terms import TaskTerms


class Part:
    """The decisions of one phase of a round, for one task. A part does no input or output."""

    def __init__(self, terms: TaskTerms) -> None:
        self.terms = terms
        self.specification = terms.specification
