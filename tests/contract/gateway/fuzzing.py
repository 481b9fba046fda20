"""The OpenAPI document as schemathesis gets it, and what every answer is held to."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from services.gateway.access.table import ACCESS, DEVICE, PUBLIC
from services.gateway.app import build
from services.gateway.settings import GatewaySettings

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
LONGEST_WAIT_SECONDS = 30
MOST_ITEMS, MOST_CHARACTERS = 20, 200
bounded = settings(
    max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)


def document() -> schemathesis.BaseSchema:
    """The gateway's own document, with sizes that can be tried."""
    return schemathesis.openapi.from_dict(_small(build(GatewaySettings()).openapi()))


def exercise(case: schemathesis.Case[Any], base_url: str, keys: dict[str, str], ids: dict[str, str]) -> None:
    """Sends one generated request with the key of a role that may, and holds the answer to the contract."""
    roles = ACCESS[operation_name(case)]
    headers = {}
    if roles is not PUBLIC:
        headers["Authorization"] = f"Bearer {keys[DEVICE if DEVICE in roles else min(roles)]}"
    for name in case.path_parameters.keys() & ids.keys():
        case.path_parameters[name] = ids[name]
    if _waits(case.query.get("wait")):
        case.query["wait"] = 0  # waiting for real is other tests' business
    case.call_and_validate(base_url=base_url, headers=headers, checks=CHECKS)


def operation_name(case: schemathesis.Case[Any]) -> str:
    """What the access table calls the route."""
    return str(case.operation.definition.raw["operationId"])


def _waits(value: object) -> bool:
    try:
        return 0 <= float(str(value)) <= LONGEST_WAIT_SECONDS
    except ValueError:
        return False


def _small(node: Any) -> Any:
    """The document with its largest sizes made small: values at the bounds are tried, and 10,000 items take minutes."""
    if isinstance(node, list):
        return [_small(item) for item in node]
    if not isinstance(node, dict):
        return node
    bounds = {"maxItems": MOST_ITEMS, "maxLength": MOST_CHARACTERS}
    return {
        key: min(value, bounds[key]) if key in bounds and isinstance(value, int) else _small(value)
        for key, value in node.items()
    }
