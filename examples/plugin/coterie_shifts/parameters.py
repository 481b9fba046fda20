"""Parameters of shifts and of the midrange rule."""

from __future__ import annotations

from coterie.parameters import ParameterGroup, parameter, parameter_group


@parameter_group("topology", "shifts")
class ShiftsParameters(ParameterGroup):
    shifts: int = parameter(default=2, at_least=2, help="Number of shifts; one of them works in each round.")


@parameter_group("rule", "midrange")
class MidrangeParameters(ParameterGroup):
    f: int = parameter(at_least=0, help="Devices that may lie; fewer than half.")
