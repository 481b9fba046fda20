"""What-if runner: JSON in, JSON out, bad input is an answer with status 2."""

import io
import json
import math

import numpy as np
import pytest

from services.kit.errors import CoterieError, InvalidInput
from services.kit.runtime import whatif


def run(argv: list[str], text: str) -> tuple[int, dict[str, object]]:
    out = io.StringIO()
    status = whatif.run({"scores": "services.trust.whatif.scores"}, argv, io.StringIO(text), out)
    return status, json.loads(out.getvalue())


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["scores", "extra"]])
def test_an_unknown_solver_error_lists_the_known_ones(argv: list[str]) -> None:
    status, answer = run(argv, "{}")
    assert status == 2
    assert answer["error"]["reason"] == "unknown_solver"  # type: ignore[index]
    assert "scores" in answer["error"]["message"]  # type: ignore[index]


def test_plain_turns_numpy_and_infinity_into_json() -> None:
    value = {
        "a": np.array([[1.0, math.inf]]),
        "b": np.float64("-inf"),
        "c": (np.int64(3), math.nan),
        "d": np.bool_(True),
    }
    assert whatif.plain(value) == {"a": [[1.0, "inf"]], "b": "-inf", "c": [3, "nan"], "d": True}


def test_an_errors_reason_is_its_class_name_in_snake_case() -> None:
    class OddThing(InvalidInput):
        pass

    assert OddThing.reason == "odd_thing"
    assert CoterieError("x").reason == "coterie_error"


class Question(whatif.Input):
    limit: whatif.Number
    count: float = 0.0


@pytest.mark.parametrize(("given", "read"), [("inf", math.inf), (2, 2.0)])
def test_a_number_may_be_the_word_inf(given: object, read: float) -> None:
    assert Question.model_validate({"limit": given}).limit == read


@pytest.mark.parametrize("bad", [{"limit": "x"}, {"limit": 1, "count": "inf"}, {"limit": 1, "other": 2}])
def test_other_words_and_unknown_keys_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Question.model_validate(bad)
