"""The privacy ledger: limits, repetition, restarts, several users at once and kill -9."""

import dataclasses
import math
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy import accounting
from coterie.privacy.accounting import Charge, total
from coterie.privacy.files import WidePermissions
from coterie.privacy.ledger import (
    DEFAULT_LIMIT,
    BudgetExceeded,
    ChargeConflict,
    LedgerUnavailable,
    LedgerUnreadable,
    Limit,
    PrivacyLedger,
)

LIMIT = Limit(epsilon=5.0, delta=1e-6)
WIDE = Limit(epsilon=1000.0, delta=1e-6)


def update(round: int, multiplier: float = 8.0, task: str = "digits") -> Charge:
    return accounting.gaussian_charge(task, round, "update", "example", multiplier, "replaced")


def test_a_new_ledger_is_empty_private_and_has_the_default_limit(tmp_path: Path) -> None:
    path = tmp_path / "device" / "privacy.ledger"
    ledger = PrivacyLedger(path)
    assert ledger.limit == DEFAULT_LIMIT
    assert (ledger.spent().epsilon, ledger.spent().releases, ledger.history()) == (0.0, 0, [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_charges_of_all_tasks_add_up_across_restarts(tmp_path: Path) -> None:
    charges = [
        update(0),
        update(1),
        update(0, task="faces"),
        accounting.laplace_charge("mesh", 0, "letter", "device", 0.1),
        accounting.zcdp_charge("market", 0, "update", "example", 0.05),
        accounting.priced_charge("market", 1, "update", 0.01),
    ]
    for charge in charges:
        PrivacyLedger(tmp_path / "ledger", WIDE, clock=lambda: 12.0).charge(charge)
    reopened = PrivacyLedger(tmp_path / "ledger")
    assert reopened.limit == WIDE
    assert reopened.spent().epsilon == pytest.approx(total(charges, 1e-6), rel=1e-12)
    assert [entry.charge for entry in reopened.history()] == charges
    assert [(entry.state, entry.charged_at) for entry in reopened.history("faces")] == [("spent", 12.0)]


def test_work_beyond_the_limit_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", LIMIT)
    with pytest.raises(BudgetExceeded) as refused:
        for round in range(1000):
            ledger.charge(update(round))
    accepted = ledger.history()
    charges = [entry.charge for entry in accepted]
    assert total(charges, LIMIT.delta) <= LIMIT.epsilon < total([*charges, refused.value.charge], LIMIT.delta)
    assert refused.value.spent == ledger.spent().epsilon == total(charges, LIMIT.delta)
    assert refused.value.asked == pytest.approx(total([*charges, refused.value.charge], LIMIT.delta))
    assert refused.value.limit == LIMIT
    assert "beyond its limit of 5" in str(refused.value)
    # A smaller release still fits, and a higher limit lets work go on.
    ledger.charge(update(2000, multiplier=200.0))
    ledger.set_limit(dataclasses.replace(LIMIT, epsilon=6.0))
    assert not ledger.charge(refused.value.charge).repeated


def test_the_same_release_is_charged_once(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", LIMIT)
    first, second = ledger.charge(update(0)), ledger.charge(update(0))
    assert (first.repeated, second.repeated) == (False, True)
    assert first.spent == second.spent == ledger.spent()
    assert ledger.spent().releases == 1


def test_a_repeat_is_free_even_when_the_budget_is_gone(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", LIMIT)
    ledger.charge(update(0))
    ledger.set_limit(dataclasses.replace(LIMIT, epsilon=0.01))
    assert ledger.charge(update(0)).repeated
    with pytest.raises(BudgetExceeded):
        ledger.charge(update(1, multiplier=1e5))


def test_the_same_release_with_less_noise_is_a_conflict(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", LIMIT)
    ledger.charge(update(0))
    with pytest.raises(ChargeConflict, match="another purpose"):
        ledger.charge(update(0, multiplier=7.0))
    assert ledger.spent().releases == 1


def test_a_reservation_counts_until_it_is_released_or_charged(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", LIMIT)
    ledger.charge(update(0))
    before = ledger.spent()
    ledger.reserve(update(1))
    assert ledger.spent().epsilon > before.epsilon
    assert ledger.release(update(1))
    assert ledger.spent() == before
    ledger.reserve(update(2))
    assert ledger.charge(update(2)).repeated
    assert not ledger.release(update(2))
    assert [entry.state for entry in ledger.history()] == ["spent", "spent"]


def test_a_preview_writes_nothing_and_skips_what_is_already_charged(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", LIMIT)
    ledger.charge(update(0))
    preview = ledger.preview([update(0), update(1), update(2, multiplier=0.1)])
    assert preview.epsilon == pytest.approx(total([update(0), update(1), update(2, multiplier=0.1)], 1e-6))
    assert ledger.spent().releases == 1


def test_device_level_limit_refuses_example_level_releases(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", Limit(5.0, 1e-6, unit="device"))
    with pytest.raises(BudgetExceeded) as refused:
        ledger.charge(accounting.priced_charge("market", 0, "update", 1e-6))
    assert refused.value.asked == math.inf
    ledger.charge(accounting.gaussian_charge("digits", 0, "update", "device", 8.0))
    ledger.set_limit(LIMIT)
    ledger.charge(accounting.priced_charge("market", 0, "update", 1e-6))
    ledger.set_limit(Limit(5.0, 1e-6, unit="device"))
    assert ledger.spent().epsilon == math.inf


def test_raw_releases_need_leave_and_are_counted_apart(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", LIMIT)
    letter = accounting.raw_charge("clusters", 0, "letter")
    with pytest.raises(BudgetExceeded):
        ledger.charge(letter)
    ledger.set_limit(dataclasses.replace(LIMIT, allow_raw=True))
    spent = ledger.charge(letter).spent
    assert (spent.epsilon, spent.releases, spent.raw_releases) == (0.0, 0, 1)
    # A Gaussian release of multiplier 0 does not get around it.
    with pytest.raises(BudgetExceeded):
        ledger.charge(update(1, multiplier=0.0))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=12))
def test_the_running_sum_is_the_sum_of_the_history(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]]
) -> None:
    ledger = PrivacyLedger(tmp_path_factory.mktemp("ledger") / "ledger", dataclasses.replace(LIMIT, epsilon=100.0))
    for round, give_back in steps:
        if give_back:
            ledger.release(update(round))
        else:
            ledger.reserve(update(round))
    expected = total([entry.charge for entry in ledger.history()], LIMIT.delta)
    assert ledger.spent().epsilon == pytest.approx(expected, rel=1e-12)


def test_a_ledger_made_with_other_orders_is_recomputed(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    charge = accounting.laplace_charge("mesh", 0, "letter", "device", 0.3)
    PrivacyLedger(path, LIMIT).charge(charge)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE settings SET value = 'older' WHERE name = 'orders'")
        database.execute("UPDATE losses SET orders = x'00', gaussian_rho = 7")
    database.close()
    assert PrivacyLedger(path).spent().epsilon == pytest.approx(total([charge], 1e-6))


def test_threads_and_reopened_ledgers_share_one_budget(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    PrivacyLedger(path, dataclasses.replace(LIMIT, epsilon=100.0))

    def charge(number: int) -> bool:
        return PrivacyLedger(path).charge(update(number % 20)).repeated

    with ThreadPoolExecutor(4) as pool:
        repeated = list(pool.map(charge, range(40)))
    assert repeated.count(False) == 20
    assert PrivacyLedger(path).spent().epsilon == pytest.approx(total(map(update, range(20)), 1e-6))


def test_wide_permissions_are_refused_with_the_command_that_mends_them(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    PrivacyLedger(path)
    path.chmod(0o644)
    with pytest.raises(WidePermissions, match=f"chmod 600 {path}"):
        PrivacyLedger(path)


def test_a_damaged_file_is_refused_instead_of_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"not a ledger at all, but long enough to be mistaken for one" * 20)
    path.chmod(0o600)
    with pytest.raises(LedgerUnreadable, match="restore it from a backup"):
        PrivacyLedger(path)
    assert path.read_bytes().startswith(b"not a ledger")


def test_a_ledger_that_vanished_is_an_error_not_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = PrivacyLedger(path)
    path.unlink()
    with pytest.raises(LedgerUnavailable, match="nothing may be sent"):
        ledger.charge(update(0))
    assert not path.exists()


KILLED_AT_EVERY_STATEMENT = """
import os, signal, sqlite3, sys
from pathlib import Path
from coterie.privacy.accounting import gaussian_charge
from coterie.privacy.ledger import Limit, PrivacyLedger

class Mortal(sqlite3.Connection):
    statements = 0
    dies_at = 0
    def execute(self, *arguments):
        Mortal.statements += 1
        if Mortal.statements == Mortal.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(*arguments)

path = Path(sys.argv[1])
# What a first charge loads is loaded before the children are: else each of them would.
PrivacyLedger(path.with_name("another"), Limit(1e3, 1e-6)).charge(gaussian_charge("t", 0, "update", "device", 5.0))
connect = sqlite3.connect
sqlite3.connect = lambda *arguments, **options: connect(*arguments, **options, factory=Mortal)
for step in range(1, 200):
    child = os.fork()
    if child == 0:
        Mortal.statements, Mortal.dies_at = 0, step
        for number in range(2):  # the step of death walks through opening, one charge and the next
            charge = gaussian_charge("t", step * 2 + number, "update", "device", 5.0)
            PrivacyLedger(path, Limit(1e3, 1e-6)).charge(charge)
            with open(sys.argv[2], "a") as receipts:
                receipts.write(f"{step * 2 + number}\\n")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status == 0:
        print(step)
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
"""


def test_killed_before_any_statement_loses_and_double_counts_nothing(tmp_path: Path) -> None:
    path, receipts = tmp_path / "ledger", tmp_path / "receipts"
    script = [sys.executable, "-c", KILLED_AT_EVERY_STATEMENT, str(path), str(receipts)]
    steps = int(subprocess.run(script, check=True, capture_output=True, text=True, timeout=900).stdout)
    assert steps > 20
    promised = {int(line) for line in receipts.read_text().split()}
    ledger = PrivacyLedger(path)
    charged = [entry.charge for entry in ledger.history()]
    rounds = [charge.round for charge in charged]
    assert len(set(rounds)) == len(rounds)
    assert promised <= set(rounds)
    assert ledger.spent().epsilon == pytest.approx(total(charged, 1e-6), rel=1e-12)
    for charge in charged:
        assert ledger.charge(charge).repeated


def test_killed_at_a_random_moment_every_receipt_is_in_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from coterie.privacy.accounting import gaussian_charge
        from coterie.privacy.ledger import Limit, PrivacyLedger
        ledger = PrivacyLedger(Path(sys.argv[1]), Limit(1e6, 1e-6))
        for number in range(10**9):
            ledger.charge(gaussian_charge("t", number, "update", "device", 5.0))
            print(number, flush=True)
    """)
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        seen = [int(child.stdout.readline()) for _ in range(25)]
        os.kill(child.pid, signal.SIGKILL)
        seen += [int(line) for line in child.stdout.read().split()]
    charged = [entry.charge for entry in PrivacyLedger(path).history()]
    assert [charge.round for charge in charged][: len(seen)] == seen
    assert len(charged) - len(seen) in (0, 1)
    assert PrivacyLedger(path).spent().epsilon == pytest.approx(total(charged, 1e-6), rel=1e-12)


def test_same_bytes_are_charged_once_and_others_under_name_of_their_own(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", LIMIT)
    first, second = (dataclasses.replace(update(1), digest=digest * 64) for digest in "ab")
    assert not ledger.charge(first).repeated
    assert ledger.charge(first).repeated
    receipt = ledger.charge(second)
    assert (receipt.repeated, receipt.charge.purpose, receipt.charge.digest) == (False, "update#2", "b" * 64)
    again = ledger.charge(second)
    assert (again.repeated, again.charge) == (True, receipt.charge)
    assert ledger.charge(first).charge.purpose == "update"
    assert ledger.spent().epsilon == pytest.approx(total([update(1), update(2)], 1e-6), rel=1e-12)


def test_unnamed_charge_of_0_1_0_does_not_match_a_release_by_bytes(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", LIMIT)
    ledger.charge(update(1))
    assert ledger.charge(dataclasses.replace(update(1), digest="a" * 64)).charge.purpose == "update#2"
    assert ledger.spent().releases == 2


def test_checking_writes_nothing(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", LIMIT)
    ledger.check(update(1))
    with pytest.raises(BudgetExceeded):
        ledger.check(update(1, multiplier=0.1))
    assert ledger.history() == []


def test_restored_ledger_reports_releases_it_cannot_know_of(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = PrivacyLedger(path, WIDE)
    ledger.charge(update(0))
    backup = path.read_bytes()
    for round in range(1, 4):
        ledger.charge(update(round))
        ledger.charge(update(round))  # repeated: no release
    assert ledger.unknown == 0
    path.write_bytes(backup)
    assert PrivacyLedger(path).unknown == 3
    PrivacyLedger(path).charge(update(9))
    assert PrivacyLedger(path).unknown == 3


def test_a_reservation_given_back_is_no_missing_release(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger.db", WIDE)
    ledger.charge(update(0))
    ledger.reserve(update(1))
    ledger.release(update(1))
    assert ledger.unknown == 0


@given(st.lists(st.sampled_from(["charge", "reserve", "release"]), max_size=12))
@settings(max_examples=15, deadline=None)
def test_whatever_is_done_with_one_ledger_nothing_is_missing_from_it(
    tmp_path_factory: pytest.TempPathFactory, acts: list[str]
) -> None:
    ledger = PrivacyLedger(tmp_path_factory.mktemp("ledger") / "ledger.db", WIDE)
    for number, act in enumerate(acts):
        if act == "release":
            ledger.release(update(max(number - 1, 0)))
        else:
            getattr(ledger, act)(update(number))
    assert ledger.unknown == 0
