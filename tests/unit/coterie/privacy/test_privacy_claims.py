"""A charge says which worlds it compares, on its way to the platform and in ledgers older than the word."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.privacy import accounting
from coterie.privacy.accounting import Adjacency, Charge, adjacency_meant
from coterie.privacy.claims import charge_of, claim_of
from coterie.privacy.ledger import Limit, PrivacyLedger
from coterie.records.privacy import PrivacyClaim
from coterie.records.words import PrivacyAdjacency, PrivacyMechanism, PrivacyUnit
from tests.dumps.stored import Dump

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


def test_a_ledger_without_adjacencies_is_read_with_those_it_meant(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = PrivacyLedger(path, Limit(100.0, 1e-5))
    charges = [
        accounting.gaussian_charge("digits", 1, "update", "device", 2.0),
        accounting.priced_charge("market", 1, "update", 0.1),
        accounting.laplace_charge("mesh", 1, "parameters", "example", 0.5),
    ]
    for charge in charges:
        ledger.charge(charge)
    with sqlite3.connect(path) as database:
        for number, body in database.execute("SELECT number, body FROM charges").fetchall():
            old = {name: value for name, value in json.loads(body).items() if name != "adjacency"}
            if old["mechanism"] == "gaussian":
                old["multiplier"] = 0.0
            database.execute("UPDATE charges SET body = ? WHERE number = ?", (json.dumps(old, sort_keys=True), number))
    reopened = PrivacyLedger(path)
    assert [entry.charge.adjacency for entry in reopened.history()] == ["left-out", "replaced", "replaced"]
    assert all(reopened.charge(charge).repeated for charge in charges)
    assert len(reopened.history("digits", 1)) == 1
    assert reopened.history("digits", 2) == []


def test_the_ledgers_of_released_versions_open_and_say_their_adjacency(tmp_path: Path) -> None:
    Dump("0.1.0", "sqlite").unpack_files(tmp_path)
    found: set[tuple[str, str, str]] = set()
    for path in (tmp_path / "devices").rglob("ledger.db"):
        ledger = PrivacyLedger(path)
        before = ledger.spent()
        for entry in ledger.history():
            charge = entry.charge
            assert charge.adjacency == adjacency_meant(charge.mechanism, charge.unit)
            found.add((charge.mechanism, charge.unit, charge.adjacency))
        assert ledger.spent() == before
    assert ("gaussian", "example", "replaced") in found  # the market
