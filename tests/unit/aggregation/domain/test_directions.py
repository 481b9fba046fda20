"""Which way figures get better, by what devices and publishers say."""

from __future__ import annotations

import pytest

from services.aggregation.domain.directions import chosen, text_of
from services.aggregation.domain.stopping import Stop
from services.aggregation.errors import BadTask


def test_the_same_words_are_stored_the_same_way() -> None:
    assert text_of({"b": "down", "a": "up"}) == text_of({"a": "up", "b": "down"})
    assert text_of({}) == ""


@pytest.mark.parametrize(
    "better", [{"a": "sideways"}, {"": "up"}, {"a" * 65: "up"}, {str(number): "up" for number in range(33)}]
)
def test_what_makes_no_sense_is_refused(better: dict[str, str]) -> None:
    with pytest.raises(BadTask, match="better"):
        text_of(better)


def test_most_devices_decide_and_a_few_liars_do_not() -> None:
    votes = {text_of({"distance": "down"}): 3, text_of({"distance": "up", "other": "down"}): 2}
    assert chosen(votes, None) == {"distance": "down", "other": "down"}


def test_of_as_many_voices_the_name_decides() -> None:
    votes = {text_of({"distance": "down", "val_loss": "up"}): 1, text_of({"distance": "up", "val_loss": "down"}): 1}
    assert chosen(votes, None) == {"distance": "up", "val_loss": "down"}


def test_the_publisher_has_the_last_word() -> None:
    assert chosen({text_of({"distance": "up"}): 9}, Stop("distance", at=1.0, better="down")) == {"distance": "down"}
