"""What-if about secure sums: every vector of the specification through the contract, and bad input."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from services.aggregation.whatif import SOLVERS
from services.kit.runtime import whatif
from services.topology.whatif import SOLVERS as TOPOLOGY

VECTORS = json.loads((Path(__file__).parents[3] / "golden/sums/secure-sums-vectors.json").read_text())
SUM = VECTORS["sums"][0]


def ask(solver: str, document: Any) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    text = document if isinstance(document, str) else json.dumps(document)
    status = whatif.run({**SOLVERS, **TOPOLOGY}, [solver], io.StringIO(text), out)
    return status, json.loads(out.getvalue())


def question(vector: dict[str, Any], **changes: Any) -> dict[str, Any]:
    devices = [{name: device[name] for name in ("id", "values", "seeds")} for device in vector["devices"]]
    return {"terms": vector["terms"], "devices": devices, "survivors": vector["survivors"], **changes}


@pytest.mark.parametrize("vector", VECTORS["sums"], ids=lambda v: f"{v['clerks']}-{v['threshold']}-{v['bits']}")
def test_sums_of_every_vector(vector: dict[str, Any]) -> None:
    status, result = ask("sums", question(vector))
    assert status == 0, result
    for name in ("terms_digest", "withheld", "held", "quorum", "survivors_digest", "share_sums", "share_digests"):
        assert result[name] == vector[name], name
    assert (result["masked_sum"], result["sum"]) == (vector["masked_sum"], vector["sum"])
    for device in vector["devices"]:
        assert result["commitments"][device["id"]] == device["commitments"]
        assert result["roots"][device["id"]] == device["root"]
        assert result["masked"][device["id"]] == device["masked"]
    reordered = question(vector, devices=question(vector)["devices"][::-1], survivors=vector["survivors"][::-1])
    assert ask("sums", reordered) == (0, result)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"terms": {**SUM["terms"], "quorum": 2}}, "terms: a quorum of 2"),
        ({"terms": {**SUM["terms"], "bits": 32.0}}, "terms: "),
        ({"devices": question(SUM)["devices"] * 2}, "an id is there twice"),
        ({"survivors": ["dev_pub0", "dev_pub0"]}, "none twice"),
        ({"survivors": ["dev_nobody"]}, "name some of the devices"),
        (
            {"devices": [{"id": "dev_pub0", "values": [1], "seeds": ["00" * 32] * 4}], "survivors": ["dev_pub0"]},
            "5 whole",
        ),
        (
            {"devices": [{"id": "dev_pub0", "values": [2**31] * 5, "seeds": ["00" * 32] * 4}], "survivors": []},
            "32 bits",
        ),
        ({"devices": [{"id": "dev_pub0", "values": [1] * 5, "seeds": ["00" * 32] * 3}], "survivors": []}, "4 shares"),
        ({"devices": [{"id": "dev_pub0", "values": [1] * 5, "seeds": ["zz"] * 4}], "survivors": []}, "32 bytes"),
    ],
)
def test_errors_of_invalid_sums_name_the_field(changes: dict[str, Any], words: str) -> None:
    status, result = ask("sums", question(SUM, **changes))
    assert status == 2, result
    assert result["error"]["reason"] == "bad_sums"
    assert words in result["error"]["message"]


@pytest.mark.parametrize("vector", VECTORS["grids"], ids=lambda v: str(v["devices"]))
def test_grid_of_every_vector(vector: dict[str, Any]) -> None:
    asked = ("devices", "elements", "clip_norm", "noise_multiplier", "honest", "survivors")
    status, result = ask("grid", {name: vector[name] for name in asked})
    assert status == 0
    assert result == pytest.approx({name: value for name, value in vector.items() if name not in asked}, rel=1e-12)


def test_where_no_grid_serves_the_reason_is_no_grid() -> None:
    status, result = ask("grid", {"devices": 10, "elements": 10**6, "noise_multiplier": 1e9, "honest": 5})
    assert (status, result["error"]["reason"]) == (2, "no_grid")
    status, result = ask("rounding", {"change": [0.0] * 100, "scale": 1})
    assert (status, result["error"]["reason"]) == (2, "no_grid")


@pytest.mark.parametrize("vector", VECTORS["rounding"], ids=lambda v: str(v["change"][0]))
def test_rounding_of_every_vector(vector: dict[str, Any]) -> None:
    asked = {name: vector[name] for name in ("change", "clip_norm", "scale", "weight")}
    assert ask("rounding", asked) == (0, {"values": vector["values"]})
    assert ask("rounding", {**asked, "change": [*vector["change"][:-1], "inf"]}) == (
        0,
        {"values": [0] * len(asked["change"])},
    )


@pytest.mark.parametrize("vector", VECTORS["noise_plans"], ids=lambda v: str(v["sigma"]))
def test_noise_plan_of_every_vector(vector: dict[str, Any]) -> None:
    status, result = ask("discrete-noise", {"sigma": vector["sigma"]})
    assert (status, {"sigma": vector["sigma"], **result}) == (0, vector)


def test_digits_and_cuts_of_every_vector() -> None:
    for table in VECTORS["noise_tables"]:
        values = [int(value) for value in table["cuts"]]
        status, result = ask("discrete-noise", {"base": table["base"], "values": values})
        assert (status, result) == (0, {"lowest": table["lowest"], "digits": [], "cuts": table["cuts"]})
    for digits in VECTORS["noise_digits"]:
        status, result = ask("discrete-noise", {"base": digits["base"], "words": digits["words"]})
        assert (status, result["digits"]) == (0, digits["digits"])


def test_a_word_that_does_not_tell_asks_for_a_further_one() -> None:
    status, result = ask("discrete-noise", {"base": 16.0, "words": ["00" * 8]})
    assert status == 2
    assert "further word" in result["error"]["message"]
    shown = ask("discrete-noise", {"base": 16.0, "words": ["00" * 16], "values": [-210, -209]})[1]
    assert shown["digits"] == [-209], "the least value whose cut is above 0"
    assert int(shown["cuts"]["-210"], 16) == 0 < int(shown["cuts"]["-209"], 16)
    assert ask("discrete-noise", {"base": 16.0, "values": [218, -218]})[1]["cuts"] == {
        "218": "f" * 32,
        "-218": "0" * 32,
    }


@pytest.mark.parametrize(
    ("solver", "document"),
    [
        ("discrete-noise", {}),
        ("discrete-noise", {"sigma": 20, "base": 16}),
        ("discrete-noise", {"sigma": 3}),
        ("discrete-noise", {"base": 600}),
        ("discrete-noise", {"base": 16, "words": ["0"]}),
        ("discrete-noise", {"base": 16, "values": [219]}),
        ("grid", {"devices": 0, "elements": 1, "noise_multiplier": 1, "honest": 1}),
        ("sum-privacy", {"participants": 5, "least": 6, "noise_multiplier": 1}),
        ("sum-privacy", {"participants": 5, "least": 3, "colluders": 3, "noise_multiplier": 1}),
        ("sum-privacy", {"participants": 5, "least": 3, "noise_multiplier": 0}),
        ("sum-privacy", {"participants": 5, "least": 3, "noise_multiplier": 1, "delta": 0}),
        ("clerks", {"trust": [[1.0]], "owners": ["a", "b"]}),
        ("clerks", {"trust": [[1.0, 0.5]], "owners": ["a"]}),
        ("sums", {"terms": {}, "devices": [], "survivors": [], "extra": 1}),
    ],
)
def test_bad_questions_are_refused(solver: str, document: dict[str, Any]) -> None:
    status, result = ask(solver, document)
    assert status == 2, result
    assert result["error"]["message"]


@pytest.mark.parametrize("vector", VECTORS["privacy"], ids=lambda v: str(v["participants"]))
def test_sum_privacy_of_every_vector(vector: dict[str, Any]) -> None:
    asked = ("participants", "least", "colluders", "noise_multiplier", "rounds", "delta")
    status, result = ask("sum-privacy", {name: vector[name] for name in asked})
    assert status == 0
    assert result == pytest.approx({name: value for name, value in vector.items() if name not in asked}, rel=1e-9)


@pytest.mark.parametrize("vector", VECTORS["clerks"], ids=lambda v: str(v["clerks"]))
def test_clerks_of_every_vector(vector: dict[str, Any]) -> None:
    status, result = ask("clerks", {name: value for name, value in vector.items() if name != "answer"})
    assert status == 0
    assert result.pop("clerks") == vector["answer"]["clerks"]
    assert result == pytest.approx({name: value for name, value in vector["answer"].items() if name != "clerks"})


def test_too_few_owners_are_an_answer() -> None:
    few = {"trust": [[1.0] * 4] * 4, "owners": ["a", "a", "b", "c"]}
    assert ask("clerks", few) == (0, {"clerks": [], "least_trust": 0, "total_trust": 0})


def test_the_modules_answer_on_their_streams() -> None:
    for service, solver, document in (
        ("aggregation", "sum-privacy", {"participants": 12, "least": 8, "noise_multiplier": 1.0}),
        ("topology", "clerks", {"trust": [[1.0] * 4] * 4, "owners": list("abcd")}),
    ):
        command = [sys.executable, "-m", f"services.{service}", "what-if", solver]
        done = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)
