"""`what-if mesh`: the BeTTa plan of a network in a file, or the evaluation of the links given."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AllowInfNan, BeforeValidator

from services.kit.runtime import whatif
from services.topology.domain.betta import MeshPlan, evaluate_links
from services.topology.domain.betta_fast import plan_soonest
from services.topology.domain.betta_network import MeshNetwork, MeshRules, Transfers

Seconds = Annotated[float, AllowInfNan(True), BeforeValidator(lambda value: math.inf if value == "inf" else value)]
"""Seconds of a transfer; the string "inf" where the link is impossible."""


class Input(whatif.Input):
    """A social and physical network; `links` asks for an evaluation instead of a plan."""

    devices: int
    trusted: list[tuple[int, int]]
    link_seconds: list[list[Seconds]]
    batch_seconds: list[float]
    epsilon: float = 1.0
    basic_batch: int = 32
    max_degree: int | None = None
    samples: list[int] | None = None
    transfers: Transfers = "parallel"
    links: list[tuple[int, int]] | None = None


def solve(given: Input) -> dict[str, Any]:
    """The plan's links, noisy devices, batches and figures, in the contract's words."""
    network = MeshNetwork.build(
        given.devices, given.trusted, given.link_seconds, given.batch_seconds, samples=given.samples
    )
    rules = MeshRules(given.epsilon, given.basic_batch, given.max_degree, given.transfers)
    if given.links is None:
        return _describe(plan_soonest(network, rules))
    plan = evaluate_links(network, rules, given.links)
    return _describe(plan) | {"hitting_times": plan.figures.hitting_times}


def _describe(plan: MeshPlan) -> dict[str, Any]:
    return {
        "links": plan.pairs,
        "dp_devices": plan.dp_devices,
        "dp_budget": plan.dp_budget,
        "batch_sizes": plan.batch_sizes,
        "mixing": plan.figures.mixing,
        "hitting_time": plan.figures.hitting_time,
        "local_iterate": plan.figures.local_iterate,
        "spectral_gap": plan.figures.spectral_gap,
        "pseudo_training_time": plan.figures.pseudo_training_time,
    }
