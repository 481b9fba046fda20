"""`what-if mesh` on degenerate and wrong input: an answer or exit 2 with a reason, never a traceback."""

import json
from io import StringIO
from typing import Any

import pytest

from services.kit.runtime import whatif
from services.topology.whatif import SOLVERS

PAIR = {"devices": 2, "trusted": [[0, 1]], "link_seconds": [[0, 3], [3, 0]], "batch_seconds": [5, 1]}


def ask(document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    out = StringIO()
    status = whatif.run(SOLVERS, ["mesh"], StringIO(json.dumps(document)), out)
    return status, json.loads(out.getvalue())


def test_defaults_are_the_specification_s() -> None:
    explicit = PAIR | {"epsilon": 1, "basic_batch": 32, "max_degree": None, "samples": None, "transfers": "parallel"}
    assert ask(PAIR) == ask(explicit)
    status, answer = ask(PAIR)
    assert status == 0
    assert answer["links"] == [[0, 1]]
    assert answer["mixing"] == [[0.5, 0.5], [0.5, 0.5]]
    assert answer["batch_sizes"] == [32, 32]
    assert (answer["dp_devices"], answer["dp_budget"], answer["local_iterate"]) == ([], 0, 8.0)


def test_one_device_is_a_trivial_plan_and_a_trivial_evaluation() -> None:
    document = {"devices": 1, "trusted": [], "link_seconds": [["inf"]], "batch_seconds": [5]}
    status, answer = ask(document)
    assert (status, answer["links"], answer["pseudo_training_time"], answer["spectral_gap"]) == (0, [], 0.0, 1.0)
    assert ask(document | {"links": []})[1]["hitting_times"] == [[0.0]]


def test_shared_transfers_and_samples_reach_the_batches() -> None:
    document = {
        "devices": 3,
        "trusted": [[0, 1], [1, 2]],
        "link_seconds": [[0, 2, "inf"], [2, 0, 4], ["inf", 4, 0]],
        "batch_seconds": [1, 1, 1],
        "basic_batch": 10,
        "transfers": "shared",
        "samples": [1000, 1000, 25],
    }
    status, answer = ask(document)
    assert status == 0
    assert answer["local_iterate"] == 7.0  # device 1: 1 + 2 + 4
    assert answer["batch_sizes"] == [50, 10, 25]  # (7 − 2)·10, the slowest, (7 − 4)·10 capped


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"devices": 0}, "bad_mesh_input", "at least one"),
        ({"devices": 3}, "bad_mesh_input", "link_seconds has shape"),
        ({"devices": 10**12}, "bad_mesh_input", "shape"),
        ({"trusted": []}, "disconnected_social_graph", "would connect"),
        ({"trusted": [[0, 2]]}, "unknown_mesh_device", "unknown device"),
        ({"trusted": [[0, -1]]}, "unknown_mesh_device", "unknown device"),
        ({"trusted": [[0, 1, 1]]}, "invalid_input", "trusted"),
        ({"link_seconds": [[0, 3], [3]]}, "bad_mesh_input", "ragged"),
        ({"link_seconds": [[0, 3], [4, 0]]}, "bad_mesh_input", "asymmetric"),
        ({"link_seconds": [[0, -3], [-3, 0]]}, "bad_mesh_input", "negative"),
        ({"link_seconds": [[0, "nan"], ["nan", 0]]}, "bad_mesh_input", "missing"),
        ({"link_seconds": [[0, None], [None, 0]]}, "invalid_input", "link_seconds"),
        ({"link_seconds": [[0, "inf"], ["inf", 0]]}, "disconnected_social_graph", "infinite"),
        ({"batch_seconds": [1, "inf"]}, "invalid_input", "batch_seconds"),
        ({"batch_seconds": [1]}, "bad_mesh_input", "batch_seconds"),
        ({"epsilon": 0}, "bad_mesh_input", "epsilon"),
        ({"epsilon": -2}, "bad_mesh_input", "epsilon"),
        ({"basic_batch": 10**30}, "bad_mesh_input", "basic_batch"),
        ({"max_degree": 0}, "bad_mesh_input", "max_degree"),
        ({"samples": [10**30, 1]}, "bad_mesh_input", "samples"),
        ({"transfers": "radio"}, "invalid_input", "transfers"),
        ({"links": []}, "not_connected", "2 parts"),
        ({"links": [[0, 5]]}, "unknown_mesh_device", "unknown device"),
        ({"links": [[0, 1]], "link_seconds": [[0, "inf"], ["inf", 0]]}, "bad_mesh_input", "impossible"),
        ({"surprise": 1}, "invalid_input", "surprise"),
    ],
)
def test_bad_input_is_refused_with_a_reason(change: dict[str, Any], reason: str, words: str) -> None:
    status, answer = ask(PAIR | change)
    assert status == 2
    assert answer["error"]["reason"] == reason
    assert words in answer["error"]["message"]


def test_extreme_but_valid_numbers_are_answered() -> None:
    status, answer = ask(PAIR | {"epsilon": 1e-300, "batch_seconds": [1e-300, 5]})
    assert status == 0
    assert answer["dp_budget"] == 0
    untrusted = PAIR | {"epsilon": 1e-300, "trusted": [], "links": [[0, 1]]}
    assert ask(untrusted)[1]["pseudo_training_time"] == "inf"
