"""A charge says which worlds it compares, on its way to the platform and in ledgers older than the word."""

from __future__ import annotations

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
    st.builds(
        accounting.sampled_gaussian_charge,
        st.just("t"),
        st.just(1),
        st.just("update"),
        st.just("example"),
        st.floats(0.1, 100.0),
        st.floats(0.01, 0.99),
        st.integers(1, 1000),
    ),
)


@given(CHARGES)
def test_what_is_told_of_a_charge_is_the_whole_charge(charge: Charge) -> None:
    assert charge_of(claim_of(charge), "t", 1) == charge


@pytest.mark.parametrize(
    ("mechanism", "unit", "meant"),
    [
        ("gaussian", "device", "left-out"),  # a clipped change of the model
        ("zcdp", "example", "replaced"),  # a budget sold, or planned in cells
        ("laplace", "example", "replaced"),  # the mesh
    ],
)
def test_a_device_of_version_0_1_0_is_taken_at_what_it_meant(mechanism: str, unit: str, meant: str) -> None:
    told = PrivacyClaim(mechanism=PrivacyMechanism(mechanism), parameter=0.5, unit=PrivacyUnit(unit))
    assert charge_of(told).adjacency == meant


def test_an_unknown_adjacency_proves_nothing() -> None:
    told = PrivacyClaim(
        mechanism=PrivacyMechanism.GAUSSIAN,
        parameter=0.5,
        unit=PrivacyUnit.DEVICE,
        adjacency=PrivacyAdjacency("group"),
    )
    assert charge_of(told).mechanism == "raw"
