"""What an open round in clusters refuses, counts and hears."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from coterie.records.enums import Form, ParticipationState, Role, RoundState, TaskState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.domain.records import Delivery, Participation, Round, Task
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadUpdate
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.store.model_files import ModelFiles
from services.kit.database.blobs import BlobStore
from services.kit.rpc.enums import word

SPEC = TaskSpecification(
    "t", topology="clusters", privacy="trust", incentive="payoff", parameters_json='{"privacy": {"noise_max": 0.6}}'
)
TASK = Task("tsk", "pub", SPEC, TaskState.RUNNING, "", 1, 0.0, 0.0, 0.0, False, 0)
ROUND = Round("tsk", 1, 1, RoundState.OPEN, 2, 20, 0.0, 60.0, 1)


def part(device: str, state: str, item: pb.WorkItem, members: list[dict[str, object]] | None = None) -> Participation:
    work = item.SerializeToString()
    return Participation(
        "tsk", 1, device, "own", word(Role, item.role), ParticipationState(state), 10, work, members=members or []
    )


def cluster(head_state: str, member_state: str, members: list[dict[str, object]] | None = None) -> OpenRound:
    """h with member m, and s alone, who has delivered."""
    head = pb.WorkItem(role=words.ROLE_HEAD, peers=[pb.Peer(device_id="m", role=words.ROLE_MEMBER)])
    member = pb.WorkItem(role=words.ROLE_MEMBER, peers=[pb.Peer(device_id="h", role=words.ROLE_HEAD)])
    solo = pb.WorkItem(role=words.ROLE_SOLO)
    devices = [
        part("h", head_state, head, members),
        part("m", member_state, member),
        part("s", "delivered", solo, [{"device_id": "m", "outcome": "rejected", "note": "by a stranger"}]),
    ]
    return OpenRound(TASK, ROUND, devices, [])


def test_members_are_counted_with_their_head() -> None:
    waiting = cluster("assigned", "delivered")
    assert (waiting.delivered, waiting.pending) == (1, 2)
    lost = cluster("dropped", "delivered")
    assert (lost.delivered, lost.pending) == (1, 0)
    done = cluster("delivered", "delivered", [{"device_id": "m", "outcome": "delivered", "note": ""}])
    assert (done.delivered, done.pending) == (3, 0)


def test_a_report_on_somebody_elses_member_counts_for_nothing() -> None:
    round_ = cluster("delivered", "delivered", [{"device_id": "m", "outcome": "delivered", "note": ""}])
    round_.roster.record_reports(
        "s", [{"device_id": "m", "outcome": "rejected", "note": ""}, {"device_id": "h", "outcome": "rejected"}]
    )
    assert round_.roster.reports == {"m": ("delivered", "")}


async def deliver(model_files: ModelFiles, device: str, values: list[float]) -> Delivery:
    data = save({"w": np.array(values, np.float32)})
    digest = await model_files.blobs.put_bytes(data)
    return Delivery("tsk", 1, device, digest, len(data), Form.SUM, 90.0, {}, 0, 0.0)


async def test_zeros_are_refused_and_anything_else_is_not(tmp_path: Path) -> None:
    model_files = ModelFiles(BlobStore.in_folder(tmp_path))
    base = await deliver(model_files, "", [1.0] * 1000)
    round_ = cluster("assigned", "assigned")
    round_.bases = ((base.digest, base.size_bytes),)
    with pytest.raises(BadUpdate, match="zero everywhere"):
        round_.take(model_files, await deliver(model_files, "h", [0.0] * 1000))
    almost = [0.0] * 999 + [1e-30]
    first = await deliver(model_files, "h", almost)
    round_.take(model_files, first)
    round_.unfold(model_files, first)
    round_.take(model_files, first)
    assert set(round_.folded) == {"h"}
