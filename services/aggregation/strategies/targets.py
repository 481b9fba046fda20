"""The noise of a task with a target ε for all its rounds together."""

from __future__ import annotations

import json
from dataclasses import replace

from coterie.parameters.privacy import MOST_MULTIPLIER, UniformPrivacy
from coterie.privacy.lifetime import Lifetime, lifetime_delta, multiplier_for
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadTask

TOPOLOGIES = ("star", "cells")
"""Topologies in which privacy "uniform" gives every device the same noise in every round."""


def with_chosen_noise(spec: TaskSpecification) -> TaskSpecification:
    """Add the noise multiplier that meets `privacy.target_epsilon`; `BadTask` if none can."""
    parameters = spec.parameters
    privacy = UniformPrivacy.of(parameters)
    target = privacy.target_epsilon
    if target is None:
        return spec
    if spec.privacy != "uniform" or spec.topology not in TOPOLOGIES:
        raise BadTask(
            "privacy.target_epsilon is for privacy uniform in a star or in cells, where all rounds have the same "
            f"noise; leave it out of privacy {spec.privacy} in {spec.topology}, or take preset fedavg, privacy uniform"
        )
    if privacy.epsilon is not None:
        raise BadTask("privacy.epsilon is of one round, privacy.target_epsilon of all together; give one of them")
    delta = lifetime_delta(parameters)
    least = multiplier_for(target, delta, spec.rounds)
    if least > MOST_MULTIPLIER:
        raise BadTask(
            f"{spec.rounds} rounds within ε = {target:g} need noise of {least:.4g} clip norms each, and at most "
            f"{MOST_MULTIPLIER:g} are allowed; ask for fewer rounds or a larger target_epsilon"
        )
    given = privacy.noise_multiplier
    if given is not None and Lifetime(given, spec.rounds, delta).epsilon > target:
        raise BadTask(
            f"{spec.rounds} rounds with a noise_multiplier of {given:.4g} cost more than ε = {target:g}, which takes "
            f"{least:.4g}; leave noise_multiplier out"
        )
    chosen = {**privacy.to_dict(), "delta": delta, "noise_multiplier": least if given is None else given}
    return replace(spec, parameters_json=json.dumps({**parameters, "privacy": chosen}))
