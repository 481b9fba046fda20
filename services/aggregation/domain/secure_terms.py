"""What a task asks of its secure sums, and the terms that follow for one cohort of one round."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.parameters.task import LEAST_COHORT, SumsParameters
from coterie.secure_sums.grid import NoGrid, choose_grid, clear_scale, grid_at
from coterie.secure_sums.masks import check_committee, commit_quorum
from coterie.secure_sums.terms import NamedClerk, Participants, Place, Terms
from services.aggregation.domain.rules.choice import Choice
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadTask
from services.kit.rpc.parameters import validate

LEAST = 3
LEAST_ROBUST = 5
"""Sums a robust rule needs to work on."""
_ROUNDING = 1e-9
_DEFAULTS = SumsParameters()


@dataclass(frozen=True, slots=True)
class SumRules:
    """`parameters.sums` of a task.

    Attributes:
        secure: mode "secure".
        clerks, threshold: m and t.
        colluders: participants, clerks among them, assumed to work with the platform; None takes the default.
        offer_seconds: patience for offers.
        clerk_seconds: patience for counting; None takes half a round, a minute at least.
        cohort_devices: devices in one sum; 0 means one sum.
        unchecked: whether a sum is taken when fewer than t clerks agree on some share.
        unverified_claims: whether budgets that cannot be checked any more are believed (market).
    """

    secure: bool = False
    clerks: int = _DEFAULTS.clerks
    threshold: int = _DEFAULTS.threshold
    colluders: int | None = _DEFAULTS.colluders
    offer_seconds: float = _DEFAULTS.offer_seconds
    clerk_seconds: float | None = _DEFAULTS.clerk_seconds
    cohort_devices: int = _DEFAULTS.cohort_devices
    unchecked: bool = _DEFAULTS.unchecked
    unverified_claims: bool = _DEFAULTS.unverified_claims

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> SumRules:
        """From a task's parameters, under "sums"; `BadTask` says what makes no sense."""
        given = validate(SumsParameters, parameters)
        rules = cls(secure=given.mode == "secure", **{name: getattr(given, name) for name in cls.__slots__[1:]})
        try:
            check_committee(rules.clerks, rules.threshold)
        except ValueError as error:
            raise BadTask(str(error)) from error
        if rules.colluders is not None and rules.colluders < rules.threshold - 1:
            raise BadTask(f"sums.colluders counts the clerks too: at least {rules.threshold - 1}")
        return rules

    def assumed_colluders(self, least: int) -> int:
        """Colluders among `least` survivors."""
        return max(self.threshold - 1, -(-least // 10)) if self.colluders is None else self.colluders

    def honest(self, least: int) -> int:
        """h; `BadTask` where no device would be left."""
        honest = least - self.assumed_colluders(least)
        if honest < 1:
            raise BadTask(
                f"of {least} survivors {self.assumed_colluders(least)} may collude, so none is sure to be honest; "
                "ask for a higher quorum, more devices or fewer colluders"
            )
        return honest

    def check_task(self, spec: TaskSpecification, choice: Choice) -> None:
        """`BadTask`, saying what to change, where a task of this size or rule cannot have its sums secure."""
        least = least_survivors(spec.quorum, max(spec.min_devices, LEAST))
        self.honest(least)
        if spec.min_devices < self.clerks:
            raise BadTask(
                f"sums.clerks {self.clerks} needs as many owners: raise min_devices to {self.clerks} or more, or take "
                "3 clerks, threshold 2"
            )
        if self.cohort_devices and spec.min_devices < self.cohort_devices:
            raise BadTask("sums.cohort_devices is above min_devices; lower it, or leave it out for one sum")
        if choice.is_mean:
            return
        if choice.by_trust:
            raise BadTask(f"rule {choice.name}: trust weighs single updates, which secure sums hide; leave trust out")
        sums = spec.min_devices // self.cohort_devices if self.cohort_devices else 1
        if sums < LEAST_ROBUST:
            raise BadTask(
                f"rule {choice.name} works on the means of sums, at least {LEAST_ROBUST} of them, and there may be "
                f"{sums}; give sums.cohort_devices and min_devices of {LEAST_ROBUST} times as many, or leave it out"
            )
        why = choice.rule.why_not(sums)
        if why:
            raise BadTask(f"parameters.rule.f: {why}, and {sums} sums is what the rule gets; lower f or the cohorts")

    def patience_seconds(self, round_seconds: float) -> float:
        """Patience for counting."""
        return max(60.0, round_seconds / 2) if self.clerk_seconds is None else self.clerk_seconds


def least_survivors(quorum: float, participants: int) -> int:
    """`least` = max(3, ⌈quorum·participants⌉); `BadTask` where fewer take part."""
    least = max(LEAST, math.ceil(quorum * participants - _ROUNDING))
    if participants < least:
        raise BadTask(f"a secure sum needs at least {LEAST} devices, {participants} take part")
    return least


def draw_cohorts(devices: Sequence[str], cohort_devices: int, seed: int, round_number: int) -> list[list[str]]:
    """Devices split evenly into cohorts of about `cohort_devices`, at least 5 each; the same on every replica."""
    ordered = sorted(devices, key=str.encode)
    count = max(1, len(ordered) // max(cohort_devices, LEAST_COHORT)) if cohort_devices else 1
    if count == 1:
        return [ordered]
    random.Random(f"cohorts {seed} {round_number}").shuffle(ordered)
    return [sorted(ordered[at::count], key=str.encode) for at in range(count)]


@dataclass(frozen=True, slots=True)
class Model:
    """The model a round starts from: its digest and its elements."""

    digest: str
    elements: int


def grid_fault(
    count: int, elements: int, clip_norm: float, noise_multiplier: float, honest: int, scale: int | None
) -> str:
    """Why no grid serves a sum with these numbers, and what to change; empty if one does."""
    if noise_multiplier == 0.0:
        return ""
    try:
        if scale is None:
            choose_grid(count, elements, clip_norm, noise_multiplier, honest)
            return ""
    except NoGrid as error:
        return str(error)
    fault = grid_at(64, scale, elements, clip_norm, noise_multiplier, honest).faults(count)
    return f"{fault}: offer variances that are closer together, or more noise" if fault else ""


def make_terms(
    place: Place,
    plan_version: int,
    model: Model,
    participants: Participants,
    clerks: Sequence[NamedClerk],
    rules: SumRules,
    *,
    quorum: float,
    clip_norm: float,
    noise_multiplier: float,
    heaviest: float,
    scale: int | None = None,
) -> Terms:
    """Terms of one sum; noise_multiplier is that of the sum, 0 for none. `NoGrid` where no grid serves.

    A survey gives its own `scale`, with words of 64 bits; else the grid is the finest that serves.
    """
    count = len(participants.keys)
    least = least_survivors(quorum, count)
    honest = rules.honest(least)
    bits = 64
    if noise_multiplier == 0.0:
        scale = clear_scale(count, heaviest)
    elif scale is not None:
        fault = grid_at(bits, scale, model.elements, clip_norm, noise_multiplier, honest).faults(count)
        if fault is not None:
            raise NoGrid(f"the scale of {scale} bits does not serve: {fault}")
    else:
        grid = choose_grid(count, model.elements, clip_norm, noise_multiplier, honest)
        bits, scale = grid.bits, grid.scale
    return Terms(
        task=place.task,
        round=place.round,
        session_number=place.session_number,
        cohort=place.cohort,
        plan_version=plan_version,
        model=model.digest,
        elements=model.elements,
        bits=bits,
        scale=scale,
        count=count,
        least=least,
        honest=honest,
        clip_norm=repr(float(clip_norm)),
        noise_multiplier=repr(float(noise_multiplier)),
        heaviest=repr(float(heaviest)),
        participants=participants.digest,
        threshold=rules.threshold,
        quorum=commit_quorum(len(clerks), rules.threshold),
        clerks=tuple(clerks),
    )


__all__ = ["Model", "NoGrid", "SumRules", "draw_cohorts", "least_survivors", "make_terms"]
