"""The noise of a task that says what all its rounds together may cost a device."""

from __future__ import annotations

import json
from dataclasses import replace

from coterie.privacy.lifetime import LIFETIME_DELTA, Lifetime, multiplier_for
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadTask

TOPOLOGIES = ("star", "cells")
"""Where privacy "uniform" gives everybody the same noise in every round."""
MOST_MULTIPLIER = 1000.0


def with_chosen_noise(spec: TaskSpecification) -> TaskSpecification:
    """The specification with the noise multiplier that `privacy.target_epsilon` asks for; `BadTask` where none can."""
    parameters = spec.parameters
    section = dict(parameters.get("privacy") or {})
    target = section.get("target_epsilon")
    if target is None:
        return spec
    if spec.privacy != "uniform" or spec.topology not in TOPOLOGIES:
        raise BadTask(
            "privacy.target_epsilon is for privacy uniform in a star or in cells, where all rounds have the same "
            f"noise; leave it out of privacy {spec.privacy} in {spec.topology}, or take preset fedavg, privacy uniform"
        )
    if section.get("epsilon") is not None:
        raise BadTask("privacy.epsilon is of one round, privacy.target_epsilon of all together; give one of them")
    delta = section.get("delta", LIFETIME_DELTA)
    if not (0 < target <= 1000 and 0 < delta < 1):
        raise BadTask(
            "privacy.target_epsilon must be above 0 and at most 1000, and delta between 0 and 1, "
            f"not {target} and {delta}"
        )
    least = multiplier_for(target, delta, spec.rounds)
    if least > MOST_MULTIPLIER:
        raise BadTask(
            f"{spec.rounds} rounds within ε = {target:g} need noise of {least:.4g} clip norms each, and at most "
            f"{MOST_MULTIPLIER:g} are allowed; ask for fewer rounds or a larger target_epsilon"
        )
    given = section.get("noise_multiplier")
    if given is not None and Lifetime(given, spec.rounds, delta).epsilon > target:
        raise BadTask(
            f"{spec.rounds} rounds with a noise_multiplier of {given:.4g} cost more than ε = {target:g}, which takes "
            f"{least:.4g}; leave noise_multiplier out"
        )
    section |= {"delta": delta, "noise_multiplier": least if given is None else given}
    return replace(spec, parameters_json=json.dumps({**parameters, "privacy": section}))
