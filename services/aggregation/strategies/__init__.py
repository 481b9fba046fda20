"""Server strategies: every decision that depends on a task's topology, privacy or incentive.

The device half of `strategies/clusters.py` is `coterie/strategies/clusters.py`. A strategy is a subclass of `Strategy`
that declares its combinations of topology, privacy and incentive, and replaces the parts in which it differs from a
star. Built-in strategies are listed in `REGISTRY`; other distributions register theirs as entry points of the group
`coterie.strategies`.

A combination without a strategy is refused, and the error lists the combinations that fit. Nothing else in this service
asks which topology, privacy or incentive a task has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from coterie.parameters.privacy import UniformPrivacy
from coterie.plugins import Registry
from coterie.privacy.adaptive import joint_norm
from coterie.records.enums import Form
from coterie.secure_sums.joining import Joined
from services.aggregation.domain import stopping, tasks
from services.aggregation.domain.bounds import Bounds
from services.aggregation.domain.rules.choice import choose
from services.aggregation.domain.secure_terms import LEAST, SumRules, grid_fault, least_survivors
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadTask, NoGrid
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.targets import with_chosen_noise
from services.kit.rpc.parameters import refusing

Axes = tuple[str, str, str]
DEFAULT_PRESET = "fedavg"


def _require_strategy(item: object) -> type[Strategy]:
    if not (isinstance(item, type) and issubclass(item, Strategy)):
        raise TypeError(f"{item!r} is not a subclass of services.aggregation.strategies.base.Strategy")
    if not (item.topology and item.privacies and item.incentives):
        raise TypeError(f"{item.__name__} must declare topology, privacies and incentives")
    return item


REGISTRY = Registry(
    "coterie.strategies",
    {
        "answer_sale": "services.aggregation.strategies.answer_sale:AnswerSale",
        "budget_sale": "services.aggregation.strategies.budget_sale:BudgetSale",
        "cells": "services.aggregation.strategies.cells:Cells",
        "clusters": "services.aggregation.strategies.clusters:Clusters",
        "contribution": "services.aggregation.strategies.contribution:Contribution",
        "mesh": "services.aggregation.strategies.mesh:Mesh",
        "noise_sale": "services.aggregation.strategies.noise_sale:NoiseSale",
        "star": "services.aggregation.strategies.star:Star",
    },
    _require_strategy,
)


@cache
def _strategies() -> dict[Axes, type[Strategy]]:
    """The strategy of each combination; a plug-in that claims a taken combination or preset is left out."""
    strategies: dict[Axes, type[Strategy]] = {}
    named: set[str] = set()
    for name, kind in REGISTRY.load_all().items():
        axes = [(kind.topology, privacy, incentive) for privacy in kind.privacies for incentive in kind.incentives]
        taken = [f"{combination} has a strategy already" for combination in axes if combination in strategies]
        taken += [f"the preset {kind.preset!r} exists already"] if kind.preset in named else []
        if taken:
            REGISTRY.reject(name, "; ".join(taken))
            continue
        named |= {kind.preset} - {""}
        strategies.update(dict.fromkeys(axes, kind))
    return strategies


def strategy_for(specification: TaskSpecification) -> Strategy:
    """Return the strategy of a task."""
    axes = (specification.topology, specification.privacy, specification.incentive)
    return _kind(axes)(specification)


def presets() -> dict[str, Axes]:
    """Topology, privacy and incentive of every preset."""
    return {
        kind.preset: (kind.topology, kind.privacies[0], kind.incentives[0])
        for kind in dict.fromkeys(_strategies().values())
        if kind.preset
    }


def combinations() -> set[Axes]:
    """All combinations of topology, privacy and incentive that have a strategy."""
    return set(_strategies())


def complete(specification: TaskSpecification) -> TaskSpecification:
    """Check the specification and return it with its preset's axes filled in."""
    with refusing():
        return _complete(specification)


def _complete(specification: TaskSpecification) -> TaskSpecification:
    known, preset = presets(), specification.preset
    if preset and preset not in known:
        raise BadTask(
            f"no preset {preset!r}; choose one of: {', '.join(known)}, or give the axes instead{REGISTRY.advice}"
        )
    topology, privacy, incentive = known[preset or DEFAULT_PRESET]
    spec = replace(
        specification,
        topology=specification.topology or topology,
        privacy=specification.privacy or privacy,
        incentive=specification.incentive or incentive,
    )
    chosen = strategy_for(spec)
    tasks.check(spec)
    Bounds.of(spec.parameters)
    chosen.task_check.require_valid()
    if spec.buffering is not None:
        chosen.task_check.require_asynchronous()
    chosen.task_check.require_rule(choose(spec.rule, spec.parameters_json))
    _check_sums(spec, chosen)
    stopping.check(spec.stop, measured=chosen.delivery.form is not Form.REPORT)
    _check_clip(spec)
    return with_chosen_noise(spec)


def _check_clip(spec: TaskSpecification) -> None:
    """Raise BadTask when the task cannot have the adaptive clip norm it asks for."""
    privacy = UniformPrivacy.of(spec.parameters)
    if privacy.clip_quantile is None:
        if privacy.clip_rate is not None:
            raise BadTask("privacy.clip_rate says how fast the clip norm moves to privacy.clip_quantile; give both")
        return
    if (spec.topology, spec.privacy) != ("star", "uniform"):
        raise BadTask("privacy.clip_quantile is for privacy uniform in a star; leave it out, or choose preset fedavg")
    if spec.buffering is not None:
        raise BadTask("privacy.clip_quantile needs rounds that all devices begin together; leave the mode out")


def _check_sums(spec: TaskSpecification, chosen: Strategy) -> None:
    """Raise BadTask when the task cannot have the secure sums it asks for."""
    rules = SumRules.of(spec.parameters)
    if not rules.secure:
        return
    if spec.buffering is not None:
        raise BadTask(
            "sums.mode secure: a secure sum is of the devices of one round, which asynchronous tasks have not; leave "
            "the mode out"
        )
    chosen.task_check.require_secure_sums(rules)
    chosen.secure_sums.committee(spec.min_devices).check_task(spec, choose(spec.rule, spec.parameters_json))


def check_grid(spec: TaskSpecification, elements: int) -> None:
    """Raise NoGrid when the task's secure sums overflow for its smallest or its largest number of devices."""
    rules, chosen = SumRules.of(spec.parameters), strategy_for(spec)
    if not rules.secure:
        return
    sizes = {spec.min_devices, spec.max_devices or spec.min_devices}
    for count in {min(rules.cohort_devices or size, size) for size in sizes}:
        honest = rules.honest(least_survivors(spec.quorum, max(count, LEAST)))
        noise = Joined.of(spec.privacy, spec.parameters).promise(count, honest).noise_multiplier
        policy, clip_norm = chosen.secure_sums, chosen.terms.clip_norm
        norm = joint_norm(clip_norm) if policy.extra_elements else clip_norm
        fault = grid_fault(
            count,
            elements + policy.extra_elements,
            clip_norm=norm,
            noise_multiplier=noise,
            honest=honest,
            scale=policy.scale,
        )
        if fault:
            raise NoGrid(f"no_grid: {fault}")


def _kind(axes: Axes) -> type[Strategy]:
    strategies = _strategies()
    for place, axis in enumerate(("topology", "privacy", "incentive")):
        known = dict.fromkeys(combination[place] for combination in strategies)
        if axes[place] not in known:
            raise BadTask(f"no {axis} {axes[place]!r}; choose one of: {', '.join(known)}{REGISTRY.advice}")
    if axes not in strategies:
        raise BadTask(_refusal(*axes))
    return strategies[axes]


def _refusal(topology: str, privacy: str, incentive: str) -> str:
    """Which choices exclude each other, and which would fit."""
    known = _strategies()
    privacies = [p for t, p, _ in known if t == topology]
    if privacy not in privacies:
        topologies = [t for t, p, _ in known if p == privacy]
        return (
            f"privacy {privacy} needs the topology {_either(topologies)}{_because(privacy)}; "
            f"the topology {topology} takes privacy {_either(privacies)}"
        )
    fitting = [i for t, p, i in known if (t, p) == (topology, privacy)]
    partners = [f"{t} and {p}" for t, p, i in known if i == incentive]
    return (
        f"incentive {incentive} goes with {_either(partners)}{_because(incentive)}; "
        f"{topology} and {privacy} take incentive {_either(fitting)}"
    )


def _because(value: str) -> str:
    reasons = (kind.reasons[value] for kind in _strategies().values() if value in kind.reasons)
    return next((f" ({reason})" for reason in reasons), "")


def _either(values: Iterable[str]) -> str:
    *most, last = dict.fromkeys(values)
    return f"{', '.join(most)} or {last}" if most else last
