"""The table of calls says what each service calls, no more and no less, and names methods that exist."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.pricing.v1 import pricing_pb2
from coterie_api.topology.v1 import topology_pb2
from coterie_api.trust.v1 import trust_pb2
from services.kit.rpc.rpc_permissions import ALLOWED, PUBLIC_RPCS
from tests.architecture.test_imports import ROOT

SERVICES = {
    service.name.lower(): service
    for messages in (trust_pb2, topology_pb2, pricing_pb2, aggregation_pb2)
    for service in messages.DESCRIPTOR.services_by_name.values()
}
METHODS = {
    f"/{service.full_name}/{method.name}": (name, method.name)
    for name, service in SERVICES.items()
    for method in service.methods
}


STATION = ROOT / "services" / "topology" / "commands" / "station.py"
"""A separate caller in topology's folder."""


def calls_of(caller: str) -> Iterator[tuple[str, str]]:
    """(stub, method) of every call in a service's source: `….registry.GetDevices(…)`, `self._trust.GetMatrix(…)`."""
    source_files = [STATION] if caller == "station" else (ROOT / "services" / caller).rglob("*.py")
    for file in source_files:
        if file == STATION and caller != "station":
            continue
        source = file.read_text()
        if "read_matrix" in source:  # the kit's own way to the matrix
            yield "trust", "GetMatrix"
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute) and (name_of(node.value), node.attr) in METHODS.values():
                yield name_of(node.value), node.attr


def name_of(node: ast.expr) -> str:
    """What an expression is called at its end: `self._parts.registry` is "registry"."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lstrip("_")


@pytest.mark.parametrize("caller", ALLOWED)
def test_a_service_may_call_what_it_calls_and_nothing_else(caller: str) -> None:
    """A new call needs its line in `services/kit/rpc/rpc_permissions.py`, or it is refused wherever there is TLS."""
    assert set(calls_of(caller)) == {METHODS[method] for method in ALLOWED[caller]}


def test_each_service_calls_only_methods_of_the_table_and_all_exist() -> None:
    assert set(ALLOWED) == {"gateway", "aggregation", "topology", "pricing", "station"}
    assert not set(calls_of("trust"))
    assert set().union(*ALLOWED.values(), PUBLIC_RPCS) <= set(METHODS)
