"""The training object of a task: bad values and unknown keys are rejected with the nearest name."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import Declined
from coterie.learning.local_steps import LocalSteps
from coterie.learning.training_config import CUSTOM, KNOWN, Instructions, check_training


def test_declared_keys_are_those_that_code_reads() -> None:
    read = {field.name for kind in (Instructions, LocalSteps) for field in dataclasses.fields(kind)}
    assert read | {"learning_rate_decay"} == KNOWN.keys() | {CUSTOM}


@pytest.mark.parametrize(
    ("training", "why"),
    [
        ({"learningrate": 0.1}, "training.learningrate: no such parameter, did you mean 'learning_rate'?"),
        ({"Epochs": 1}, "did you mean 'epochs'?"),
        ({"zzz": 1}, "training.zzz: no such parameter; training takes: epochs, batch_size, learning_rate"),
        ({"zzz": 1}, "put what your own code reads under training.custom"),
        ({"epochs": "three"}, "training.epochs: must be a whole number at least 0, not 'three'"),
        ({"epochs": 1.5}, "whole number"),
        ({"epochs": True}, "whole number"),
        ({"batch_size": 0}, "at least 1, not 0"),
        ({"learning_rate": float("nan")}, "training.learning_rate: must be a number"),
        ({"learning_rate": None}, "training.learning_rate: must be a number"),
        ({"momentum": 1.5}, "at least 0 and at most 1"),
        ({"clip_norm": 0}, "above 0"),
        ({"steps": 10_001}, "at most 10000"),
        ({"custom": [1]}, "training.custom: must be a JSON object"),
    ],
)
def test_task_creation_rejects_bad_training(training: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_training(training)


def test_good_training_passes_and_becomes_instructions() -> None:
    training = {
        "epochs": 0,
        "batch_size": 4,
        "learning_rate": 1,
        "proximal": 0.1,
        "steps": 3,
        "custom": {"any": [None]},
    }
    check_training(training)
    instructions = Instructions.of(training, batch_size=8)
    assert (instructions.epochs, instructions.batch_size, instructions.learning_rate) == (0, 8, 1)
    assert instructions.custom == {"any": [None]}
    check_training({})


@given(st.dictionaries(st.sampled_from([*KNOWN, CUSTOM]), st.none() | st.booleans() | st.integers() | st.floats()))
def test_device_declines_training_that_a_task_cannot_have(training: dict[str, Any]) -> None:
    """A device checks again, so that a platform without checks cannot make it train on bad values."""
    own = {name: value for name, value in training.items() if name in Instructions.__slots__}
    try:
        check_training(own)
    except ValueError:
        with pytest.raises(Declined, match="makes no sense"):
            Instructions.of(training)
    else:
        Instructions.of(training)
