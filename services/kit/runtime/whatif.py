"""Run a solver on a JSON file, without a platform: `python -m services.<name> what-if <solver> < in.json`.

A solver is a module `services/<name>/whatif/<solver>.py` with two names: `Input`, a subclass of this module's `Input`
whose fields are the contract's keys with the spec's defaults, and `solve(input) -> dict`. The same two serve the
command line (`run`) and the RPC (`answer`).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, TextIO

import numpy as np
from pydantic import AllowInfNan, BaseModel, BeforeValidator, ConfigDict, ValidationError

from services.kit.errors import CoterieError, InvalidInput, NotFound


class UnknownSolver(NotFound):
    """No what-if solver has that name."""


class NotJson(InvalidInput):
    """Standard input, or the request body, is not a JSON object."""


class Input(BaseModel):
    """Base of every solver's input: unknown keys are errors, numbers are finite unless typed `Number`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _read_infinity(value: object) -> object:
    return math.inf if value == "inf" else value


Number = Annotated[float, AllowInfNan(True), BeforeValidator(_read_infinity)]
"""A float that may be the string "inf"."""


def answer(modules: Mapping[str, str], solver: str, text: str) -> str:
    """Run a solver on a JSON object; return JSON. modules: solver name → module path."""
    if solver not in modules:
        raise UnknownSolver(f"no what-if solver {solver!r}; choose one of: {', '.join(sorted(modules))}")
    module = import_module(modules[solver])
    document = _read(text)
    if not isinstance(document, dict):
        raise NotJson(f"the input must be a JSON object, not {type(document).__name__}")
    try:
        parsed = module.Input.model_validate(document)
        result: dict[str, Any] = module.solve(parsed)
    except ValidationError as error:
        raise InvalidInput(_describe(error)) from error
    return json.dumps(plain(result), allow_nan=False)


def run(modules: Mapping[str, str], argv: Sequence[str], stdin: TextIO, stdout: TextIO) -> int:
    """Run a solver from streams; return 0, or 2 with `{"error": {"reason", "message"}}` on bad input."""
    try:
        if len(argv) != 1 or argv[0] in ("-h", "--help"):
            raise UnknownSolver(
                f"usage: what-if SOLVER < in.json > out.json; SOLVER is one of: {', '.join(sorted(modules))}"
            )
        text = answer(modules, argv[0], stdin.read())
    except CoterieError as error:
        text, status = json.dumps({"error": {"reason": error.reason, "message": error.message}}), 2
    except ValueError as error:  # a domain precondition, or bytes that are not UTF-8
        text, status = json.dumps({"error": {"reason": InvalidInput.reason, "message": str(error)}}), 2
    else:
        status = 0
    stdout.write(text + "\n")
    return status


def main(modules: Mapping[str, str], argv: Sequence[str]) -> int:
    """`run` on the process's streams."""
    return run(modules, argv, sys.stdin, sys.stdout)


def plain(value: Any) -> Any:
    """Convert numpy values to Python, infinities to "inf" or "-inf" and NaN to "nan"."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


@dataclass(frozen=True, slots=True)
class _Constant:
    """NaN, Infinity or -Infinity, which Python parses although JSON lacks them."""

    name: str


def _read(text: str) -> object:
    constants: list[str] = []

    def constant(name: str) -> _Constant:
        constants.append(name)
        return _Constant(name)

    try:
        document = json.loads(text, parse_constant=constant)
        path = next(_paths(document), "input") if constants else ""
    except (ValueError, RecursionError) as error:
        raise NotJson(f"the input is not JSON, or nested too deeply: {error}") from error
    if constants:
        raise NotJson(f'{path}: {constants[0]} is not JSON; write infinity as the string "inf"')
    return document


def _paths(value: object, here: str = "") -> Iterator[str]:
    """Yield the paths of constants in a document, in order."""
    if isinstance(value, _Constant):
        yield here or "input"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, f"{here}.{key}" if here else str(key))


def _describe(error: ValidationError) -> str:
    """Describe each problem: path, message, received value."""
    lines = []
    for item in error.errors()[:5]:
        where = ".".join(str(part) for part in item["loc"]) or "input"
        lines.append(f"{where}: {item['msg']} (got {str(item['input'])[:60]})")
    return "; ".join(lines)
