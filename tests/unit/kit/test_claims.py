"""Privacy charges between services are the claims that records keep."""

from __future__ import annotations

import pytest

from coterie.privacy.claims import Claim, charge_of
from coterie_api.pricing.v1.pricing_pb2 import PrivacyCharge
from services.kit.claims import claim_message, read_claim

CLAIM = Claim(mechanism="gaussian", parameter=2.0, unit="device", sampling_rate=0.5, steps=3, adjacency="left-out")


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "zcdp", "raw"])
@pytest.mark.parametrize("adjacency", ["left-out", "replaced", ""])
def test_a_claim_comes_back_as_it_was(mechanism: str, adjacency: str) -> None:
    claim = CLAIM | {"mechanism": mechanism, "adjacency": adjacency}
    assert read_claim(claim_message(Claim(**claim))) == claim


def test_a_word_nobody_knows_counts_as_no_noise_at_all() -> None:
    odd = read_claim(claim_message(Claim(**CLAIM | {"mechanism": "magic", "unit": "village"})))
    assert (odd["mechanism"], odd["unit"]) == ("", "")
    newer = read_claim(PrivacyCharge.FromString(b"\x38\x63\x40\x63"))  # mechanism and unit 99
    assert [charge_of(claim).mechanism for claim in (odd, newer)] == ["raw", "raw"]


def test_a_claim_that_the_first_release_stored_has_no_adjacency() -> None:
    stored = {key: value for key, value in CLAIM.items() if key != "adjacency"}
    assert read_claim(claim_message(stored))["adjacency"] == ""  # type: ignore[arg-type]  # as a row gives it
