"""Every parameter that a planner, noise, incentive, rule or strategy reads is in the message of parameters."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from coterie_api.parameters.v1.parameters_pb2 import TaskParameters
from services.aggregation.domain.bounds import Bounds
from services.aggregation.domain.buffering import WANTED
from services.aggregation.domain.rules.axis import METHODS, OPTIMISERS, PRES
from services.aggregation.domain.secure_terms import _CHECKS
from services.pricing.domain.incentives import MODELS
from services.topology.planners.betta_inputs import MeshParameters, PartialPrivacy
from services.topology.planners.cells import CellsParameters, OptimisedPrivacy
from services.topology.planners.clusters import ClusterParameters, TrustPrivacy
from services.topology.planners.star import UniformPrivacy

READ: dict[str, list[Iterable[str]]] = {
    "topology": [kind.model_fields for kind in (ClusterParameters, MeshParameters, CellsParameters)],
    "privacy": [
        *(kind.model_fields for kind in (UniformPrivacy, TrustPrivacy, PartialPrivacy, OptimisedPrivacy)),
        ["sampling_rate"],  # which every task is refused, by services.aggregation.domain.tasks
    ],
    "pricing": [kind.model_fields for kind in MODELS.values()],
    "rule": [["known"], *(keys for table in (METHODS, PRES, OPTIMISERS) for keys, _ in table.values())],
    "survey": [["question", "low", "high"]],
    "sums": [["mode"], _CHECKS],
    "bounds": [Bounds.__slots__],
    "pace": [WANTED],
}
"""Keys of each section, by reader."""
TOLD = {"offer"}
"""Sections that the platform writes and devices read."""


def test_every_section_has_a_reader() -> None:
    assert set(TaskParameters.DESCRIPTOR.fields_by_name) == READ.keys() | TOLD


@pytest.mark.parametrize("section", READ)
def test_a_section_has_exactly_the_keys_that_somebody_reads(section: str) -> None:
    """A key that is missing here is refused at the gateway: add its line to parameters.proto."""
    kind = TaskParameters.DESCRIPTOR.fields_by_name[section].message_type
    assert kind is not None
    assert set(kind.fields_by_name) == {key for keys in READ[section] for key in keys}
