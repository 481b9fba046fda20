"""A claim reports the whole charge; what a claim leaves out or gets wrong counts at the safe side."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.privacy import accounting
from coterie.privacy.accounting import Adjacency, Charge
from coterie.privacy.claims import charge_of, claim_of
from coterie.records.enums import PrivacyAdjacency, PrivacyMechanism, PrivacyUnit
from coterie.records.privacy import PrivacyClaim

ADJACENCIES: list[Adjacency] = ["left-out", "replaced"]
CHARGES = st.one_of(
    st.builds(
        accounting.gaussian_charge,
        st.just("t"),
        st.just(1),
        st.just("update"),
        st.sampled_from(["device", "example"]),
        st.floats(0.1, 100.0),
        st.sampled_from(ADJACENCIES),
    ),
    st.builds(
        accounting.laplace_charge,
        st.just("t"),
        st.just(1),
        st.just("update"),
        st.just("example"),
        st.floats(0.1, 100.0),
        st.sampled_from(ADJACENCIES),
    ),
)


@given(CHARGES)
def test_a_claim_reports_the_whole_charge(charge: Charge) -> None:
    assert charge_of(claim_of(charge), "t", 1) == charge


@pytest.mark.parametrize(
    ("mechanism", "unit", "meant"),
    [
        ("gaussian", "device", "left-out"),  # a clipped change of the model
        ("zcdp", "example", "replaced"),  # a budget sold, or planned in cells
        ("laplace", "example", "replaced"),  # the mesh
    ],
)
def test_a_claim_without_adjacency_has_the_usual_one_of_its_mechanism(mechanism: str, unit: str, meant: str) -> None:
    claim = PrivacyClaim(mechanism=PrivacyMechanism(mechanism), parameter=0.5, unit=PrivacyUnit(unit))
    assert charge_of(claim).adjacency == meant


def test_a_claimed_sampling_rate_does_not_lower_the_cost() -> None:
    claim = PrivacyClaim(mechanism=PrivacyMechanism.GAUSSIAN, parameter=0.5, unit=PrivacyUnit.DEVICE)
    assert charge_of(dataclasses.replace(claim, sampling_rate=0.1)) == charge_of(claim)


def test_an_unknown_adjacency_proves_nothing() -> None:
    claim = PrivacyClaim(
        mechanism=PrivacyMechanism.GAUSSIAN,
        parameter=0.5,
        unit=PrivacyUnit.DEVICE,
        adjacency=PrivacyAdjacency("group"),
    )
    assert charge_of(claim).mechanism == "raw"
