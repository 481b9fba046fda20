"""What a checkpoint of a cell policy holds, read without torch. [DPVD]"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.kit.errors import InvalidInput

Tensors = dict[str, NDArray[Any]]


class InvalidTraining(InvalidInput):
    """A learning configuration that cannot be run, or tensors that are no checkpoint."""


def read_meta(tensors: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    try:
        meta: dict[str, Any] = json.loads(np.asarray(tensors["meta"]).tobytes())
    except (KeyError, ValueError) as error:
        raise InvalidTraining("these tensors are not a checkpoint of a cell policy: `meta` is missing") from error
    return meta


def write_meta(meta: Mapping[str, Any]) -> Tensors:
    """The reverse of `read_meta`."""
    return {"meta": np.frombuffer(json.dumps(dict(meta)).encode(), dtype=np.uint8).copy()}


def tensors_under(tensors: Mapping[str, NDArray[Any]], part: str) -> Tensors:
    """The arrays under `part.`, without the prefix."""
    prefix = f"{part}."
    return {key.removeprefix(prefix): np.array(value) for key, value in tensors.items() if key.startswith(prefix)}


def station_part(tensors: Mapping[str, NDArray[Any]], station: int) -> Tensors:
    """One station's own weights out of a trained policy's, in which no station reads another's."""
    config = read_meta(tensors)["config"]
    weights = tensors_under(tensors, "best" if config["keep_best"] else "weights")
    made = write_meta({"config": config, "features": int(weights["element.first"].shape[1])})
    return made | {f"weights.{name}": array[station : station + 1].copy() for name, array in weights.items()}
