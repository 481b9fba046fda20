"""What a device checks before it masks, what it notes, and what it adds."""

import dataclasses
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.privacy.gaussian import exact_epsilon
from coterie.privacy.grid import squared_norm
from coterie.privacy.simulation import SeededStream
from coterie.secure_sums import notes
from coterie.secure_sums.acceptance import Promise, TermsRefused, check_terms, company_of, first_seen
from coterie.secure_sums.circle import Circle, Member
from coterie.secure_sums.contribution import charged_multiplier, contribution, purpose, relative_weight, rho_alone
from coterie.secure_sums.grid import choose_grid
from coterie.secure_sums.terms import Participants, Terms
from tests.attacks.sum_fixture import PROMISE, SumFixture, circle_of, keys_of, myself, names, owner_of

NOISY = dataclasses.replace(PROMISE, noise_multiplier=2.0)


@pytest.fixture
def sum_fixture(tmp_path: Path) -> SumFixture:
    return SumFixture(tmp_path, names(8), least=6)


def noisy(terms: Terms, **changes: Any) -> Terms:
    """Terms with noise as an honest platform would write them."""
    fields = {"noise_multiplier": "2.0", "clip_norm": "1.0", **changes}
    blank = dataclasses.replace(terms, **fields)
    grid = choose_grid(blank.count, blank.elements, float(blank.clip_norm), blank.noise, blank.honest)
    return dataclasses.replace(blank, bits=grid.bits, scale=grid.scale)


def check(sum_fixture: SumFixture, terms: Terms, promise: Promise = PROMISE, circle: Circle | None = None) -> None:
    check_terms(terms, sum_fixture.participants, myself("dev_07"), promise, circle or circle_of(names(4)))


def test_honest_terms_are_taken_with_noise_and_without(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    check(sum_fixture, terms)
    check(sum_fixture, noisy(terms), NOISY)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"noise_multiplier": "1.0"}, "other noise"),
        ({"model": "00" * 32}, "another model"),
        ({"elements": 6}, "another model"),
        ({"least": 7, "honest": 6}, None),
        ({"honest": 5, "least": 5}, "more honest"),
        ({"bits": 32}, "64 bits"),
        ({"scale": 3}, "64 bits"),
        ({"heaviest": "0.0"}, "no heaviest"),
        ({"session_number": 2}, "not signed by it for this session"),
        ({"round": 2}, "not signed by it for this session"),
        ({"cohort": 1}, "not signed by it for this session"),
        ({"participants": "00" * 32}, "list of participants"),
        ({"count": 9}, "64 bits|list of participants"),
    ],
    ids=str,
)
def test_terms_other_than_promised_are_refused(
    sum_fixture: SumFixture, changes: dict[str, Any], why: str | None
) -> None:
    terms = dataclasses.replace(sum_fixture.terms(), **changes)
    if why is None:
        check(sum_fixture, terms)
        return
    with pytest.raises(TermsRefused, match=why):
        check(sum_fixture, terms)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"clip_norm": "0.0"}, "no clip norm"),
        ({"scale": 45}, "too wide"),
        ({"scale": 5}, "too coarse"),
        ({"bits": 32, "scale": 24}, "64 bits"),
        ({"bits": 32, "scale": 40}, "wrap round"),
    ],
    ids=str,
)
def test_grids_that_do_not_serve_are_refused(sum_fixture: SumFixture, changes: dict[str, Any], why: str) -> None:
    terms = dataclasses.replace(noisy(sum_fixture.terms()), **changes)
    with pytest.raises(TermsRefused, match=why):
        check(sum_fixture, terms, NOISY)


def test_the_owners_smallest_sum_and_colluders_count(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    with pytest.raises(TermsRefused, match="fewer devices"):
        check(sum_fixture, terms, circle=circle_of(names(4), smallest_sum=7))
    with pytest.raises(TermsRefused, match="more honest"):
        check(sum_fixture, terms, dataclasses.replace(PROMISE, colluders=2))


# --- clerks and circles -----------------------------------------------------------------------------------------------


def test_clerks_outside_the_circle_are_counted_and_named(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    with pytest.raises(TermsRefused, match="coterie circle verify dev_03"):
        check(sum_fixture, terms, circle=circle_of(names(3)))
    check(sum_fixture, terms, circle=circle_of(names(3), strangers=1))
    with pytest.raises(TermsRefused, match="allows 1"):
        check(sum_fixture, terms, circle=circle_of(names(2), strangers=6))  # never more than t − 1
    with pytest.raises(TermsRefused, match="4 of the clerks"):
        check(sum_fixture, terms, circle=Circle())


def test_a_clerk_need_not_be_in_its_own_circle(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    check_terms(terms, sum_fixture.participants, myself("dev_00"), PROMISE, circle_of(["dev_01", "dev_02", "dev_03"]))


def test_first_use_keeps_the_keys_and_refuses_others_later(sum_fixture: SumFixture) -> None:
    terms, circle = sum_fixture.terms(), Circle(mode="first-use")
    check(sum_fixture, terms, circle=circle)
    retained = first_seen(terms, myself("dev_07"), circle)
    assert set(retained.seen) == set(names(4))
    check(sum_fixture, terms, circle=retained)
    posing = dataclasses.replace(retained, seen={**retained.seen, "dev_02": Member(bytes(32), owner_of("dev_02"))})
    with pytest.raises(TermsRefused, match="ANOTHER KEY"):
        check(sum_fixture, terms, circle=posing)
    assert company_of(sum_fixture.participants, "dev_07", dataclasses.replace(retained, company_least=1)) == []
    assert first_seen(terms, myself("dev_07"), Circle()) == Circle()


# --- company ----------------------------------------------------------------------------------------------------------


def test_company_is_verified_members_that_take_part_and_not_oneself(sum_fixture: SumFixture) -> None:
    known = circle_of([*names(4), "dev_07", "dev_absent"], company_least=2)
    company = company_of(sum_fixture.participants, "dev_07", known)
    assert len(company) == 4
    assert company == sorted(company)
    assert company_of(sum_fixture.participants, "dev_07", circle_of(names(4))) == []


def test_more_company_than_a_letter_holds_is_drawn_at_random() -> None:
    many = [f"dev_{number:03}" for number in range(100)]
    people = Participants.of({device: keys_of(device).public().signing for device in many})
    known = circle_of(many, company_least=3)
    draws = {tuple(company_of(people, "dev_000", known)) for _ in range(3)}
    assert all(len(draw) == 64 for draw in draws)
    assert len(draws) == 3


def test_a_device_without_its_company_declines_before_anything_is_charged(sum_fixture: SumFixture) -> None:
    with pytest.raises(TermsRefused, match="wants 5 beside it"):
        check(sum_fixture, sum_fixture.terms(), circle=circle_of(names(4), company_least=5))


# --- notes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        notes.prepare(connection)
        notes.prepare(connection)
        yield connection


def test_a_place_is_prepared_once_and_only_upwards(sum_fixture: SumFixture, database: sqlite3.Connection) -> None:
    terms = noisy(sum_fixture.terms())
    later = dataclasses.replace(terms, session_number=2)
    other_cohort = dataclasses.replace(terms, cohort=1)
    assert notes.note(database, terms) is False
    assert notes.note(database, terms) is True
    for refused in (dataclasses.replace(terms, least=5), other_cohort):
        with pytest.raises(TermsRefused, match="already prepared round 1, session 1"):
            notes.note(database, refused)
    assert notes.note(database, later) is False
    with pytest.raises(TermsRefused, match="session 2"):
        notes.note(database, terms)
    assert notes.note(database, dataclasses.replace(terms, task="tsk_other")) is False
    assert notes.note(database, dataclasses.replace(terms, round=2, session_number=1)) is False


def test_without_noise_a_model_is_summed_once(sum_fixture: SumFixture, database: sqlite3.Connection) -> None:
    terms = sum_fixture.terms()
    assert notes.note(database, terms) is False
    assert notes.note(database, terms) is True
    for again in (dataclasses.replace(terms, session_number=2), dataclasses.replace(terms, round=5)):
        with pytest.raises(TermsRefused, match="only one update"):
            notes.note(database, again)
    assert notes.note(database, dataclasses.replace(terms, round=2, model="11" * 32)) is False


# --- contribution -----------------------------------------------------------------------------------------------------


def test_a_contribution_is_the_rounded_change_and_its_share_of_noise(sum_fixture: SumFixture) -> None:
    sum_fixture.elements = 5_000
    terms = noisy(sum_fixture.terms())
    grid = terms.grid()
    change = np.full(5_000, 3.0)
    values = contribution(change, terms, 1.0, SeededStream(1))
    still = contribution(np.zeros(5_000), terms, 1.0, SeededStream(1))
    assert squared_norm(values - still) <= grid.bound**2
    assert still.std() == pytest.approx(grid.share, rel=0.05)
    lighter = contribution(np.full(5_000, 1e-3), terms, 0.5, SeededStream(1)) - still
    assert lighter == pytest.approx(np.full(5_000, 0.5e-3 * 2.0**terms.scale), abs=1)


def test_a_contribution_without_noise_is_that_of_a_clear_sum(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    values = contribution(np.array([0.5, -1.0, 0.0, 2.0, 3.0]), terms, 1.0, SeededStream(1))
    assert values.tolist() == [v * 2**terms.scale for v in (0.5, -1.0, 0.0, 2.0, 3.0)]
    with pytest.raises(TermsRefused, match="too large"):
        contribution(np.full(5, math.nan), terms, 1.0, SeededStream(1))


@pytest.mark.parametrize("weight", [0.0, -1.0, 1.5, math.nan])
def test_weights_beyond_the_heaviest_are_declined(sum_fixture: SumFixture, weight: float) -> None:
    with pytest.raises(TermsRefused, match="heaviest"):
        contribution(np.zeros(5), sum_fixture.terms(), weight, SeededStream(1))


def test_a_change_of_another_size_is_a_mistake(sum_fixture: SumFixture) -> None:
    with pytest.raises(ValueError, match="5 elements"):
        contribution(np.zeros(4), sum_fixture.terms(), 1.0, SeededStream(1))


def test_weights_are_relative_to_the_heaviest_where_some_exceed_one(sum_fixture: SumFixture) -> None:
    terms = noisy(sum_fixture.terms())
    assert relative_weight(terms, 0.25) == 0.25
    assert relative_weight(dataclasses.replace(terms, heaviest="50.0"), 25.0) == 0.5


def test_the_charge_is_the_terms_or_counts_on_company_alone(sum_fixture: SumFixture) -> None:
    terms = noisy(sum_fixture.terms())  # h = 5
    assert charged_multiplier(terms, circle_of(names(4))) == 2.0
    believing = [charged_multiplier(terms, circle_of(names(4), count="company", company_least=n)) for n in range(5)]
    assert believing[4] == pytest.approx(2.0, rel=1e-12)
    assert believing == sorted(believing)
    assert believing[0] == pytest.approx(2.0 / math.sqrt(5), rel=1e-3)
    assert charged_multiplier(terms, circle_of(names(4), count="company", company_least=40)) == pytest.approx(2.0)
    assert rho_alone(terms) == pytest.approx(5 / (2 * 2.0**2), rel=1e-3)
    assert purpose(terms) == f"sum-{terms.digest.hex()}"


def test_the_price_if_clerks_collude_is_that_of_the_own_share() -> None:
    """12 devices, z = 4, h = 7, ten rounds: 3.35 claimed, 10.6 if t clerks collude (specification §13)."""
    grid = choose_grid(12, 650, 1.0, 4.0, 7)
    rho = grid.bound**2 / (2 * grid.share**2)
    assert math.ceil(10 * exact_epsilon(math.sqrt(1 / (2 * 10 * rho)), 1e-5)) == 106
    assert math.ceil(100 * exact_epsilon(4.0 / math.sqrt(10), 1e-5)) == 335
