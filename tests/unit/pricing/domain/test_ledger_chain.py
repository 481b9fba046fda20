"""The ledger: hashes by hand, shares by brute force, and detection of every kind of tampering."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.pricing.domain.ledger import (
    GENESIS,
    MINT,
    Entry,
    Payment,
    Posting,
    Unbalanced,
    attach,
    check_balanced,
    hash_entry,
)
from services.pricing.domain.ledger_check import LedgerCheck
from services.pricing.domain.money import apportion

PAYMENT = Payment(1, 3.0, "tsk_1", 1, "dev_1", "own_1", 30, 10, 3.0, 0.0, "10 µcr × zCDP budget 3")
Sealed = tuple[Entry, str, list[Payment]]


def seal(entries: list[tuple[Entry, list[Payment]]]) -> list[Sealed]:
    """The entries with their hashes, chained."""
    head, sealed = GENESIS, []
    for entry, payments in entries:
        head = hash_entry(head, entry)
        sealed.append((entry, head, payments))
    return sealed


def small_ledger() -> list[Sealed]:
    """A deposit of 100, an escrow of 50, a payment of 30."""
    sides = ((MINT, "publisher:p"), ("publisher:p", "escrow:tsk_1"), ("escrow:tsk_1", "device:dev_1"))
    entries = []
    for k, ((source, target), amount) in enumerate(zip(sides, (100, 50, 30), strict=True), start=1):
        made = [PAYMENT] if k == 3 else []
        postings = (Posting(source, -amount), Posting(target, amount))
        entries.append((Entry(k, float(k), "move", f"key-{k}", "", attach(made), postings), made))
    return seal(entries)


BALANCES = [(MINT, -100), ("publisher:p", 50), ("escrow:tsk_1", 20), ("device:dev_1", 30), ("owner:own_1", 0)]


def faults(ledger: list[Sealed], balances: list[tuple[str, int]] = BALANCES) -> list[str]:
    check = LedgerCheck()
    check.take(ledger)
    check.compare(balances)
    return check.verdict().faults


def test_a_hash_covers_the_one_before_the_header_and_every_posting() -> None:
    """The canonical text, written out by hand."""
    entry = Entry(7, 1.5, "escrow", "escrow:tsk_1", "für", "", (Posting("a:1", -5), Posting("b:2", 5)))
    text = "ab" * 32 + '\n[7, 1.5, "escrow", "escrow:tsk_1", "f\\u00fcr", "", 2]\na:1\t-5\nb:2\t5'
    assert hash_entry("ab" * 32, entry) == hashlib.sha256(text.encode()).hexdigest()


def test_a_sound_ledger_has_no_faults() -> None:
    check = LedgerCheck()
    check.take(small_ledger())
    check.compare(BALANCES)
    verdict = check.verdict()
    assert (verdict.sound, verdict.entries, verdict.postings) == (True, 3, 6)
    assert verdict.head == small_ledger()[-1][1]


def change(ledger: list[Sealed], place: int, entry: Entry) -> list[Sealed]:
    return [(entry, stored, made) if k == place else (e, stored, made) for k, (e, stored, made) in enumerate(ledger)]


def test_a_changed_amount_is_found_by_its_hash_and_by_the_balances() -> None:
    ledger = small_ledger()
    entry = replace(ledger[1][0], postings=(Posting("publisher:p", -40), Posting("escrow:tsk_1", 40)))
    result = faults(change(ledger, 1, entry))
    assert "entry 2 or one before it was changed: its hash does not match" in result
    assert "account escrow:tsk_1 shows 20 but its postings sum to 10" in result


def test_a_changed_hash_breaks_the_next_link() -> None:
    ledger = small_ledger()
    entry = replace(ledger[0][0], note="edited")
    forged = [(entry, hash_entry(GENESIS, entry), []), *ledger[1:]]
    assert faults(forged) == ["entry 2 or one before it was changed: its hash does not match"]


def test_a_missing_entry_is_found() -> None:
    ledger = small_ledger()
    assert any("entry 3 follows entry 1: 1 missing" in fault for fault in faults([ledger[0], ledger[2]]))


def test_a_changed_reason_of_a_payment_is_found() -> None:
    ledger = small_ledger()
    ledger[2] = (ledger[2][0], ledger[2][1], [PAYMENT._replace(because="because I say so")])
    assert faults(ledger) == ["the payments of entry 3 are not those it was sealed with"]


def test_a_changed_balance_and_an_account_without_one_are_found() -> None:
    changed = [(account, 31 if account == "device:dev_1" else held) for account, held in BALANCES[1:]]
    assert faults(small_ledger(), changed) == [
        "account device:dev_1 shows 31 but its postings sum to 30",
        f"account {MINT} has postings that sum to -100 but does not exist",
    ]


def test_an_entry_that_makes_money_is_found_even_when_it_was_sealed() -> None:
    entry = Entry(1, 1.0, "deposit", "k", "", "", (Posting("publisher:p", 5),))
    assert "the postings of entry 1 sum to 5, not to 0" in faults(seal([(entry, [])]), [("publisher:p", 5)])


def test_an_overdrawn_account_is_found() -> None:
    entry = Entry(1, 1.0, "x", "k", "", "", (Posting("publisher:p", -5), Posting("device:d", 5)))
    result = faults(seal([(entry, [])]), [("publisher:p", -5), ("device:d", 5)])
    assert result == ["account publisher:p is overdrawn: its postings sum to -5"]


@given(st.lists(st.integers(-(10**15), 10**15).filter(bool), max_size=30))
def test_postings_sum_to_zero_or_are_refused(amounts: list[int]) -> None:
    """Money: postings sum to zero, always."""
    postings = [Posting(f"device:{k}", amount) for k, amount in enumerate(amounts)]
    rest = -sum(amounts)
    if rest:
        with pytest.raises(Unbalanced):
            check_balanced(postings)
        check_balanced([*postings, Posting("escrow:x", rest)])
    else:
        check_balanced(postings)


def test_a_posting_of_nothing_is_refused() -> None:
    with pytest.raises(Unbalanced):
        check_balanced([Posting("a:1", 0)])


def test_shares_go_to_the_largest_fractions_and_then_by_name() -> None:
    """10 over weights 1, 1, 1, 4: 1.43 each and 5.71; the spare two go to 5.71's fraction and the first name."""
    assert apportion(10, [1, 1, 1, 4], ["c", "a", "b", "d"]) == [1, 2, 1, 6]


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=40).filter(any),
    st.fractions(0, 1),
)
def test_shares_sum_to_the_total_and_never_pass_their_weight(weights: list[int], fraction: object) -> None:
    """Σ shares = total; with total ≤ Σ weights, share ≤ weight; each within one of the exact share."""
    whole = sum(weights)
    total = int(whole * fraction)  # type: ignore[operator]
    shares = apportion(total, weights, [str(k) for k in range(len(weights))])
    assert sum(shares) == total
    for share, weight in zip(shares, weights, strict=True):
        assert 0 <= share <= weight
        assert abs(share * whole - total * weight) < whole


def test_no_weights_give_no_shares() -> None:
    assert apportion(5, [0, 0], ["a", "b"]) == [0, 0]
