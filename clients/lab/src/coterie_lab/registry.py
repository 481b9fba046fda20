"""All experiments by name. An experiment is one module of `coterie_lab.experiments` with a tuple `EXPERIMENTS`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from coterie_lab import experiments
from coterie_lab.experiment import Experiment


class UnknownExperiment(LookupError):
    """No experiment has this name; the message names the nearest."""


@cache
def registered() -> dict[str, Experiment]:
    """Every experiment, by paper and in the order of its module."""
    result: dict[str, Experiment] = {}
    for module in iter_modules(experiments.__path__):
        for item in import_module(f"{experiments.__name__}.{module.name}").EXPERIMENTS:
            if item.name in result:
                raise ValueError(f"two experiments are called {item.name}")
            result[item.name] = item
    return result


def find(name: str, beside: Sequence[str] = ()) -> Experiment:
    """The experiment of this name; `beside` are other words that could have been meant."""
    known = registered()
    if name in known:
        return known[name]
    near = get_close_matches(name, (*beside, *known), n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else "`lab list` names them all"
    raise UnknownExperiment(f"there is no experiment {name!r}; {hint}")
