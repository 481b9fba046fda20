"""What-if answers equal the stored ones.

`python tests/golden/whatif/questions.py --against tests/golden/whatif/answers.json.gz` compares bytes. Here numbers may
differ in their last digits, because linear-algebra libraries sum in another order on another processor.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.golden.whatif.questions import MODULES, ask, stored

ANSWERS = stored()
SOLVERS = sorted({row.solver for row in ANSWERS})


def alike(now: Any, before: Any) -> bool:
    """The same, but for the last digits of numbers."""
    if isinstance(before, dict):
        return isinstance(now, dict) and list(now) == list(before) and all(alike(now[k], before[k]) for k in before)
    if isinstance(before, list):
        return isinstance(now, list) and len(now) == len(before) and all(map(alike, now, before))
    if isinstance(before, float) and isinstance(now, float):
        return now == pytest.approx(before, rel=1e-9, abs=1e-12)
    return type(now) is type(before) and bool(now == before)


def test_every_first_solver_is_present_and_was_asked() -> None:
    assert SOLVERS == ["blocks", "clusters", "identity", "market", "mesh", "noise", "scores", "survey"]
    assert set(SOLVERS) <= set(MODULES)
    assert len(ANSWERS) == 189
    assert {row.status for row in ANSWERS} == {0, 2}


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_answers_equal_the_stored_ones(solver: str) -> None:
    for row in ANSWERS:
        if row.solver == solver:
            now = ask(solver, row.question)
            assert now.status == row.status, row.question
            assert alike(json.loads(now.answer), json.loads(row.answer)), (row.question, now.answer, row.answer)


def test_an_answer_that_changed_would_be_noticed() -> None:
    row = next(row for row in ANSWERS if row.solver == "noise" and row.status == 0)
    document = json.loads(row.answer)
    assert alike(document, document)
    assert not alike(document | {"value": document["value"] * 1.000001}, document)
    assert not alike({key: document[key] for key in reversed(document)}, document)
    assert not alike(document | {"noise": document["noise"][1:]}, document)
