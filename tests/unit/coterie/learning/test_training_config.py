"""What a task tells its devices about training: nonsense is refused by name, and the nearest name is offered."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import Declined
from coterie.learning.local_steps import LocalSteps
from coterie.learning.training_config import CUSTOM, KNOWN, Instructions, check_training


def test_every_key_that_somebody_reads_is_known() -> None:
    read = {field.name for kind in (Instructions, LocalSteps) for field in dataclasses.fields(kind)}
    assert read | {"learning_rate_decay"} == KNOWN.keys() | {CUSTOM}


@pytest.mark.parametrize(
    ("training", "why"),
    [
        ({"learningrate": 0.1}, "training has no key 'learningrate', did you mean 'learning_rate'?"),
        ({"Epochs": 1}, "did you mean 'epochs'?"),
        ({"zzz": 1}, r"training has no key 'zzz' \(known: batch_size, batches, clip_norm"),
        ({"zzz": 1}, "your own code reads goes under training.custom"),
        ({"epochs": "three"}, "training.epochs must be a whole number of at least 0, not 'three'"),
        ({"epochs": 1.5}, "whole number"),
        ({"epochs": True}, "whole number"),
        ({"batch_size": 0}, "of at least 1, not '0'"),
        ({"learning_rate": float("nan")}, "training.learning_rate must be a number"),
        ({"learning_rate": None}, "training.learning_rate must be a number"),
        ({"momentum": 1.5}, "of at least 0 and at most 1"),
        ({"clip_norm": 0}, "above 0"),
        ({"steps": 10_001}, "at most 10000"),
        ({"custom": [1]}, "training.custom must be an object"),
    ],
)
def test_what_makes_no_sense_is_refused_when_a_task_is_made(training: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_training(training)


def test_what_makes_sense_passes_and_is_read_alike() -> None:
    training = {
        "epochs": 0,
        "batch_size": 4,
        "learning_rate": 1,
        "proximal": 0.1,
        "steps": 3,
        "custom": {"any": [None]},
    }
    check_training(training)
    told = Instructions.of(training, batch_size=8)
    assert (told.epochs, told.batch_size, told.learning_rate, told.custom) == (0, 8, 1, {"any": [None]})
    check_training({})


@given(st.dictionaries(st.sampled_from([*KNOWN, CUSTOM]), st.none() | st.booleans() | st.integers() | st.floats()))
def test_a_device_declines_whatever_a_task_may_not_ask(training: dict[str, Any]) -> None:
    """A platform that does not check must not make a device train on nonsense."""
    own = {name: value for name, value in training.items() if name in Instructions.__slots__}
    try:
        check_training(own)
    except ValueError:
        with pytest.raises(Declined, match="makes no sense"):
            Instructions.of(training)
    else:
        Instructions.of(training)
