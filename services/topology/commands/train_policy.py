"""`python -m services.topology.commands.train_policy`: trains one policy in a separate process, started by the planner.

A job comes as a line of JSON on standard input; each evaluation leaves as a line of JSON on standard output, after its
checkpoint is in the blob store. Started again with the last checkpoint, the run goes on bit for bit. Standard input
stays open: when the planner is gone it closes, and the process ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from coterie.parameters.topology import RadioParameters
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.database.blobs import BlobStore, UnknownBlob
from services.kit.errors import CoterieError
from services.kit.rpc.parameters import from_struct, validate
from services.kit.runtime.exit_with_parent import exit_when_closed
from services.kit.runtime.settings import ServiceSettings
from services.kit.runtime.workers import PLANNING_NICENESS
from services.topology.planners.cell_network import network, population

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch: same bits on every machine, one core at most

MOST_CHECKPOINTS = 30


@dataclass(frozen=True, slots=True)
class Job:
    """Inputs of a training. cells: as registered at the request. checkpoint: digest to resume from."""

    request: pb.TrainPolicyRequest
    cells: tuple[pb.Cell, ...]
    checkpoint: str = ""

    def to_bytes(self, **more: str) -> bytes:
        """As JSON text."""
        document = {
            "request": _text(self.request.SerializeToString()),
            "cells": [_text(cell.SerializeToString()) for cell in self.cells],
            "checkpoint": self.checkpoint,
        }
        return json.dumps(document | more).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Job:
        """The reverse of `to_bytes`."""
        given = json.loads(data)
        request = pb.TrainPolicyRequest.FromString(base64.b64decode(given["request"]))
        cells = tuple(pb.Cell.FromString(base64.b64decode(cell)) for cell in given["cells"])
        return cls(request, cells, given["checkpoint"])


def train_policy(job: Job, blobs: BlobStore) -> None:
    """Train, and print each evaluation on standard output."""
    import torch

    from services.topology.domain.cell_learning import Progress, train
    from services.topology.domain.cell_learning_config import LearningConfig

    torch.set_num_threads(1)
    request = job.request
    steps = request.steps or LearningConfig().steps
    plan: Callable[..., LearningConfig] = LearningConfig
    if request.network == words.POLICY_NETWORK_SET:
        plan = LearningConfig.specified
    config = plan(
        mixing="iql" if request.learner == words.POLICY_LEARNER_IQL else "vdn",
        named=False,
        steps=steps,
        epoch=max(LearningConfig().epoch, steps // MOST_CHECKPOINTS),
    )
    radio = validate(RadioParameters, {"radio": from_struct(request.radio)})
    people = population(job.cells, request.users, request.models, np.random.default_rng([request.seed, 2]))
    cells = network(
        job.cells, people, request.models, radio, fixed_penalty=request.penalty == words.POLICY_PENALTY_FIXED
    )
    progress: list[Progress] = []

    def checkpoint(step: int, tensors: dict[str, NDArray[Any]]) -> None:
        finished = step == config.steps
        needed = ("meta", "best." if config.keep_best else "weights.")
        retained = {name: value for name, value in tensors.items() if not finished or name.startswith(needed)}
        digest, _ = blobs.put_pieces(iter([save(retained)]))
        print(json.dumps(asdict(progress[-1]) | {"digest": digest}), flush=True)

    train(cells, config, request.seed, save=checkpoint, on_progress=progress.append, resume=_resume(job, blobs))


def _resume(job: Job, blobs: BlobStore) -> Mapping[str, NDArray[Any]] | None:
    """Load the checkpoint's tensors; None if it was deleted: the run then restarts, with the same result."""
    if not job.checkpoint:
        return None
    try:
        return asyncio.run(read_tensors(blobs, job.checkpoint))
    except UnknownBlob:
        return None


async def read_tensors(blobs: BlobStore, digest: str) -> dict[str, NDArray[Any]]:
    """A stored safetensors file."""
    return dict(load(b"".join([piece async for piece in blobs.stream(digest)])))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def main() -> int:
    """Run one job from standard input; return 0 when the policy is ready."""
    data = sys.stdin.buffer.readline()
    exit_when_closed(sys.stdin.fileno())
    os.nice(PLANNING_NICENESS)
    place = json.loads(data)
    settings = ServiceSettings(data_dir=Path(place["data_dir"]), blob_url=place["blob_url"])
    try:
        train_policy(Job.from_bytes(data), BlobStore.from_settings(settings))
    except BrokenPipeError:
        sys.stderr.close()  # the parent closed the pipe, so nothing can read a traceback
        return 1
    except CoterieError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
