"""Surveys: tasks without training, whose model is one number, the mean of the answers.

with Platform(url, publisher_key) as platform:
    task = create_survey(platform, "warmth", Question("How warm is it, in °C?", 10, 35), escrow_microcredits=40_000_000)
    platform.wait_for_end(task.id)
    print(survey_result(platform, task.id))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors.numpy import save

from coterie.client import Platform
from coterie.privacy.question_text import Question
from coterie.records import RoundState, Task

LEAST_NOISE = 0.61
"""Least standard deviation of the noise, in ranges: one answer alone costs less than ε = 8 at δ = 1e-5."""
ERROR = 10.0
"""Allowed error of the sum of all answers, in ranges, for the certificate of [CAPP]."""


def initial_model() -> bytes:
    """Return the initial model of every survey: the number 0."""
    return save({"value": np.zeros(1)})


def survey_specification(
    question: Question, pricing: Mapping[str, Any] | None = None, sums: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the fields that make a task a survey; `pricing` replaces parameters of the offers (variances in ranges²).

    `sums`, such as {"mode": "secure"}, hides single answers from the platform.
    """
    defaults = {"variance_low": LEAST_NOISE**2, "error": ERROR}
    return {
        "preset": "survey",
        "rounds": 1,
        "privacy_unit": "device",
        "parameters": {
            "survey": {"question": question.text, "low": question.low, "high": question.high},
            "pricing": {**defaults, **(pricing or {})},
            **({"sums": dict(sums)} if sums else {}),
        },
    }


def create_survey(
    platform: Platform,
    name: str,
    question: Question,
    *,
    escrow_microcredits: int,
    pricing: Mapping[str, Any] | None = None,
    sums: Mapping[str, Any] | None = None,
    **options: Any,
) -> Task:
    """Create a survey; `options` are those of `Platform.create_task`, such as min_devices and auto_start."""
    digest = platform.upload_model(initial_model())
    return platform.create_task(
        name=name,
        model_digests=[digest],
        escrow_microcredits=escrow_microcredits,
        description=options.pop("description", question.text),
        **(survey_specification(question, pricing, sums) | options),
    )


def survey_result(platform: Platform, task_id: str) -> dict[str, float]:
    """Return estimate, standard error, error bound, answers and variance of a survey; empty without answers."""
    for round in platform.rounds(task_id):
        if round.state == RoundState.DONE:
            return dict(round.metrics)
    return {}
