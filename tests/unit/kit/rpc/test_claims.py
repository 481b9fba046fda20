"""Privacy charges between services are the claims that records keep."""

from __future__ import annotations

import math

import pytest
from pydantic import TypeAdapter, ValidationError

from coterie.privacy.claims import charge_of
from coterie.records.privacy import PrivacyClaim
from coterie_api.pricing.v1.pricing_pb2 import PrivacyCharge
from services.kit.rpc.claims import claim_message, read_claim

STORED = {
    "mechanism": "gaussian",
    "parameter": 2.0,
    "unit": "device",
    "sampling_rate": 0.5,
    "steps": 3,
    "adjacency": "left-out",
}


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "zcdp", "raw"])
@pytest.mark.parametrize("adjacency", ["left-out", "replaced", ""])
def test_a_claim_comes_back_as_it_was(mechanism: str, adjacency: str) -> None:
    claim = PrivacyClaim.from_json(STORED | {"mechanism": mechanism, "adjacency": adjacency})
    assert read_claim(claim_message(claim)) == claim


def test_an_unknown_mechanism_counts_as_no_noise() -> None:
    odd = read_claim(claim_message(PrivacyClaim.from_json(STORED | {"mechanism": "magic", "unit": "village"})))
    assert (odd.mechanism, odd.unit) == ("", "")
    newer = read_claim(PrivacyCharge.FromString(b"\x38\x63\x40\x63"))  # mechanism and unit 99
    assert [charge_of(claim).mechanism for claim in (odd, newer)] == ["raw", "raw"]


def test_a_claim_that_the_first_release_stored_has_no_adjacency() -> None:
    stored = {key: value for key, value in STORED.items() if key != "adjacency"}
    assert read_claim(claim_message(PrivacyClaim.from_json(stored))).adjacency == ""


TAKEN: TypeAdapter[PrivacyClaim] = TypeAdapter(PrivacyClaim)


def test_gateway_accepts_device_reports_with_defaults_of_0_1_0() -> None:
    assert TAKEN.validate_python(STORED) == PrivacyClaim.from_json(STORED)
    least = {"mechanism": "zcdp", "parameter": 0.1, "unit": "example"}
    assert TAKEN.validate_python(least) == PrivacyClaim.from_json(
        least | {"sampling_rate": 0.0, "steps": 0, "adjacency": ""}
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"mechanism": "magic"},
        {"mechanism": ""},
        {"mechanism": "sampled-gaussian"},
        {"unit": "village"},
        {"adjacency": "group"},
        {"parameter": -1.0},
        {"parameter": math.inf},
        {"parameter": math.nan},
        {"parameter": 1e16},
        {"sampling_rate": 1.5},
        {"steps": -1},
        {"steps": 2**31},
        {"steps": 1.5},
        {"epsilon": 1.0},
    ],
    ids=str,
)
def test_the_gateway_refuses_unknown_words_and_invalid_numbers(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TAKEN.validate_python(STORED | wrong)
