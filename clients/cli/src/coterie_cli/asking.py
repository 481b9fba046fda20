"""Asking a survey: a task that trains nothing, whose model is one number, the mean of the answers.

with Platform(url, publisher_key) as platform:
    task = ask(platform, "warmth", Question("How warm is your kitchen, in °C?", 10, 35), escrow_microcredits=40_000_000)
    platform.wait_for_end(task.id)
    print(result_of(platform, task.id))
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
"""Least deviation of an answer's noise, in shares of the range: one answer alone stays below ε = 8 at δ = 1e-5."""
ERROR = 10.0
"""Shares of the range by which the sum of all answers may be off, for [CAPP]'s certificate."""


def blank() -> bytes:
    """The model of every survey: one number, 0."""
    return save({"value": np.zeros(1)})


def specification(
    question: Question, pricing: Mapping[str, Any] | None = None, sums: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What makes a task a survey; `pricing` replaces parameters of the offers (variances in ranges squared).

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


def ask(
    platform: Platform,
    name: str,
    question: Question,
    *,
    escrow_microcredits: int,
    pricing: Mapping[str, Any] | None = None,
    sums: Mapping[str, Any] | None = None,
    **options: Any,
) -> Task:
    """Creates a survey; options are those of `Platform.create_task`, such as min_devices and auto_start."""
    digest = platform.upload_model(blank())
    return platform.create_task(
        name=name,
        model_digests=[digest],
        escrow_microcredits=escrow_microcredits,
        description=options.pop("description", question.text),
        **(specification(question, pricing, sums) | options),
    )


def result_of(platform: Platform, task_id: str) -> dict[str, float]:
    """Estimate, standard error, error bound, answers and variance of an ended survey; empty when nobody answered."""
    for round in platform.rounds(task_id):
        if round.state == RoundState.DONE:
            return dict(round.metrics)
    return {}
