"""Every parameter of a task, declared once: type, default, bounds, unit, title, help and the choice that reads it.

A group is the parameters that one topology, privacy, incentive or rule reads. To add one, declare it and name it in
`registry.OWN`, or in an entry point `coterie.parameters` of another package:

    @parameter_group("topology", "ring")
    class RingParameters(ParameterGroup):
        neighbours: int = parameter(default=2, at_least=1, help="Neighbours on each side.")

    RingParameters.validate(parameters).neighbours

Services, the REST schema, the console's forms, `coterie task parameters` and the reference page read these
declarations.
"""

from coterie.parameters.declaration import REQUIRED, Parameter, ParameterGroup, parameter, parameter_group
from coterie.parameters.errors import BadParameter, did_you_mean
from coterie.parameters.registry import groups_read, read_groups

__all__ = [
    "REQUIRED",
    "BadParameter",
    "Parameter",
    "ParameterGroup",
    "did_you_mean",
    "groups_read",
    "parameter",
    "parameter_group",
    "read_groups",
]
