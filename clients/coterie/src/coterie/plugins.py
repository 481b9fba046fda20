"""Plug-ins: built-in objects by name, and those that other distributions register as entry points.

Groups of entry points: `coterie.strategies`, `coterie.device_strategies`, `coterie.planners`, `coterie.rules` and
`coterie.incentives`. A plug-in that cannot be used is logged with the name of its distribution and left out; the
process and all other plug-ins keep working.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

T = TypeVar("T")
_log = logging.getLogger("coterie.plugins")


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """A plug-in that was left out, and why."""

    name: str
    distribution: str
    reason: str

    def __str__(self) -> str:
        return f"plug-in {self.name!r} of {self.distribution} was left out: {self.reason}"


class Registry(Generic[T]):
    """The objects of one group of entry points, loaded on first use."""

    def __init__(self, group: str, builtin: Mapping[str, str], check: Callable[[object], T]) -> None:
        """Create a registry.

        group: group of the entry points of plug-ins.
        builtin: "module:attribute" of each built-in object, by name.
        check: returns the object if it has the group's interface, else raises TypeError with what is missing.
        """
        self.group, self.failures = group, dict[str, PluginFailure]()
        self._builtin = {name: EntryPoint(name, value, group) for name, value in builtin.items()}
        self._check, self._loaded = check, dict[str, T]()

    @cached_property
    def _points(self) -> dict[str, EntryPoint]:
        """Built-in entry points, then those of plug-ins in the order of their names."""
        points = dict(self._builtin)
        for point in sorted(entry_points(group=self.group), key=lambda point: (point.name, _distribution_of(point))):
            if point.name not in points:
                points[point.name] = point
            elif point.name in self._builtin:
                self._fail(point, f"{point.name!r} is the name of a built-in of the group {self.group}; choose another")
            elif point.value != points[point.name].value:
                first = _distribution_of(points[point.name])
                self._fail(point, f"{first} also registers {point.name!r} in the group {self.group}; uninstall one")
        return points

    @property
    def names(self) -> list[str]:
        """All names that were not left out so far."""
        return list(self._points)

    def get(self, name: str) -> T | None:
        """Return the object of that name; None if there is none or it was left out."""
        if name not in self._loaded and name in self._points:
            point = self._points[name]
            if name in self._builtin:
                self._loaded[name] = self._check(point.load())
            else:
                self._load_plugin(point)
        return self._loaded.get(name)

    def load_all(self) -> dict[str, T]:
        """Load every object and return those that work."""
        loaded = {name: self.get(name) for name in self.names}
        return {name: item for name, item in loaded.items() if item is not None}

    def reject(self, name: str, reason: str) -> None:
        """Leave a plug-in out, for a reason that appears beside other plug-ins; raise ValueError for a built-in."""
        if name in self._builtin:
            raise ValueError(f"built-in {name!r} of the group {self.group}: {reason}")
        self._fail(self._points.pop(name), reason)
        self._loaded.pop(name, None)

    @property
    def advice(self) -> str:
        """The failures of this group, to append to an error about an unknown name; empty without failures."""
        return "".join(f"; {failure}" for failure in self.failures.values())

    def _load_plugin(self, point: EntryPoint) -> None:
        try:
            self._loaded[point.name] = self._check(point.load())
        except Exception as error:
            self.reject(point.name, f"{type(error).__name__}: {error}")

    def _fail(self, point: EntryPoint, reason: str) -> None:
        failure = PluginFailure(point.name, _distribution_of(point), reason)
        self.failures[f"{failure.distribution} {point.name}"] = failure
        _log.error("%s", failure)


def require_members(item: object, *names: str) -> None:
    """Raise TypeError unless the object has all of these members."""
    missing = [name for name in names if not hasattr(item, name)]
    if missing:
        raise TypeError(f"{item!r} lacks {', '.join(missing)}")


def _distribution_of(point: EntryPoint) -> str:
    return "coterie" if point.dist is None else f"{point.dist.name} {point.dist.version}"
