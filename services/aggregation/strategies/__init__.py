"""Server strategies: every decision that depends on a task's topology, privacy or incentive.

The device half of `strategies/clusters.py` is `coterie/strategies/clusters.py`. A strategy is a subclass of `Strategy`,
whose defaults are those of a star; its file holds what differs. Register it with the combinations it takes, the
preset's own choices first:

    @strategy("clusters", privacy=("trust", "uniform", "none"), incentive=("payoff", "none"), preset="clusters")
    class Clusters(Strategy): ...

A combination without a strategy is refused, and the error lists the combinations that fit. Nothing else in this service
asks which topology, privacy or incentive a task has.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import TypeVar

from coterie.privacy.adaptive import AdaptiveClip, joint_norm
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

W = TypeVar("W", bound=type[Strategy])
Axes = tuple[str, str, str]
_REGISTRY: dict[Axes, type[Strategy]] = {}
_PRESETS: dict[str, Axes] = {}
_WHY: dict[str, str] = {}
DEFAULT_PRESET = "fedavg"


def strategy(
    topology: str,
    *,
    privacy: Sequence[str] = ("none",),
    incentive: Sequence[str] = ("none",),
    preset: str = "",
    why: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[W], W]:
    """Registers a class for a topology with these privacies and incentives; the first of each are the preset's.

    `why` explains the privacies and incentives of this strategy alone, for error messages.
    """

    def register(kind: W) -> W:
        combinations = [(topology, p, i) for p in privacy for i in incentive]
        _REGISTRY.update(dict.fromkeys(combinations, kind))
        _WHY.update(why)
        if preset:
            _PRESETS[preset] = combinations[0]
        return kind

    return register


def strategy_for(specification: TaskSpecification) -> Strategy:
    """Return the strategy of a task."""
    axes = (specification.topology, specification.privacy, specification.incentive)
    return _kind(axes)(specification)


def presets() -> dict[str, Axes]:
    """Topology, privacy and incentive of every preset."""
    _load_all()
    return dict(_PRESETS)


def combinations() -> set[Axes]:
    """All combinations of topology, privacy and incentive that are taken."""
    _load_all()
    return set(_REGISTRY)


def complete(specification: TaskSpecification) -> TaskSpecification:
    """The specification with its preset's axes filled in, if all of it makes sense."""
    known, preset = presets(), specification.preset
    if preset and preset not in known:
        raise BadTask(f"no preset {preset!r}; choose one of: {', '.join(known)}, or give the axes instead")
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
    chosen.check()
    if spec.buffering is not None:
        chosen.check_pace()
    chosen.check_rule(choose(spec.rule, spec.parameters_json))
    _check_sums(spec, chosen)
    stopping.check(spec.stop, measured=chosen.form is not Form.REPORT)
    _check_clip(spec)
    return with_chosen_noise(spec)


def _check_clip(spec: TaskSpecification) -> None:
    """Raises BadTask where the task asks for a clip norm that adapts and cannot have it."""
    section = spec.parameters.get("privacy") or {}
    if section.get("clip_quantile") is None:
        if section.get("clip_rate") is not None:
            raise BadTask("privacy.clip_rate says how fast the clip norm moves to privacy.clip_quantile; give both")
        return
    if (spec.topology, spec.privacy) != ("star", "uniform"):
        raise BadTask("privacy.clip_quantile is for privacy uniform in a star; leave it out, or choose preset fedavg")
    if spec.buffering is not None:
        raise BadTask("privacy.clip_quantile needs rounds that all devices begin together; leave the pace out")
    try:
        AdaptiveClip.of(spec.parameters)
    except ValueError as error:
        raise BadTask(str(error)) from error


def _check_sums(spec: TaskSpecification, chosen: Strategy) -> None:
    """Raises BadTask where the task asks for secure sums it cannot have."""
    rules = SumRules.of(spec.parameters)
    if not rules.secure:
        return
    if spec.buffering is not None:
        raise BadTask(
            "sums.mode secure: a secure sum is of the devices of one round, which asynchronous tasks have not; leave "
            "the pace out"
        )
    chosen.check_sums(rules)
    chosen.committee(spec.min_devices).check_task(spec, choose(spec.rule, spec.parameters_json))


def check_grid(spec: TaskSpecification, elements: int) -> None:
    """Raises NoGrid where the numbers of the task's secure sums would fit no word, however few or many devices come."""
    rules, chosen = SumRules.of(spec.parameters), strategy_for(spec)
    if not rules.secure:
        return
    sizes = {spec.min_devices, spec.max_devices or spec.min_devices}
    for count in {min(rules.cohort_devices or size, size) for size in sizes}:
        honest = rules.honest(least_survivors(spec.quorum, max(count, LEAST)))
        noise = Joined.of(spec.privacy, spec.parameters).promise(count, honest).noise_multiplier
        norm = joint_norm(chosen.clip_norm) if chosen.counts else chosen.clip_norm
        fault = grid_fault(count, elements + chosen.counts, norm, noise, honest, chosen.sum_scale)
        if fault:
            raise NoGrid(f"no_grid: {fault}")


def _kind(axes: Axes) -> type[Strategy]:
    _load_all()
    for place, axis in enumerate(("topology", "privacy", "incentive")):
        known = dict.fromkeys(taken[place] for taken in _REGISTRY)
        if axes[place] not in known:
            raise BadTask(f"no {axis} {axes[place]!r}; choose one of: {', '.join(known)}")
    if axes not in _REGISTRY:
        raise BadTask(_refusal(*axes))
    return _REGISTRY[axes]


def _refusal(topology: str, privacy: str, incentive: str) -> str:
    """Which choice does not go with which, and what would."""
    privacies = [p for t, p, _ in _REGISTRY if t == topology]
    if privacy not in privacies:
        homes = [t for t, p, _ in _REGISTRY if p == privacy]
        return (
            f"privacy {privacy} needs the topology {_either(homes)}{_because(privacy)}; "
            f"the topology {topology} takes privacy {_either(privacies)}"
        )
    fitting = [i for t, p, i in _REGISTRY if (t, p) == (topology, privacy)]
    homes = [f"{t} and {p}" for t, p, i in _REGISTRY if i == incentive]
    return (
        f"incentive {incentive} goes with {_either(homes)}{_because(incentive)}; "
        f"{topology} and {privacy} take incentive {_either(fitting)}"
    )


def _because(value: str) -> str:
    return f" ({_WHY[value]})" if value in _WHY else ""


def _either(values: Iterable[str]) -> str:
    *most, last = dict.fromkeys(values)
    return f"{', '.join(most)} or {last}" if most else last


@cache
def _load_all() -> None:
    """Imports every module of this package, so that each registers itself."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
