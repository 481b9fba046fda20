"""`coterie payments` before a platform that answers from a table."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coterie.client import Platform
from coterie.records import Account, Me, Task
from coterie_cli.commands import payments
from coterie_cli.console import Mistake
from tests.answers import made

PAYMENT = {
    "number": 7, "at": 1_700_000_000.0, "task_id": "tsk_1", "round": 2, "device_id": "dev_1", "owner_id": "own_1",
    "amount_microcredits": 411_000, "price_microcredits": 1_370_001, "budget": 0.3, "quality": 0.0,
    "because": "=1370001 µcr × zCDP budget 0.3",
}  # fmt: skip
POSTING = {
    "entry": 3, "at": 1_700_000_000.0, "account_id": "device:dev_1", "amount_microcredits": 411_000, "kind": "payment",
    "note": "round 2 of task tsk_1",
}  # fmt: skip


class Stand(Platform):
    """A platform that records its requests."""

    def __init__(self) -> None:
        super().__init__("http://stand")
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.sound = True

    def find_task(self, id_or_name: str) -> Task:
        return made(Task, id=f"tsk_of_{id_or_name}")

    def me(self) -> Me:
        return made(Me, role="device", subject="dev_1")

    def request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        params = {**(options.get("params") or options.get("json") or {})}
        self.requests.append((method, path, {name: value for name, value in params.items() if value}))
        if path == "/v1/payments":
            items = [{**PAYMENT, "number": number} for number in (9, 8, 7)]
            return {"items": items, "next_cursor": ""}
        if path.endswith("/statement"):
            last = options["params"]["cursor"] == "3.1"
            account = made(Account, id="device:dev_1").to_dict()
            page = {"account": account, "opening_microcredits": 0, "closing_microcredits": 822_000}
            return {**page, "items": [POSTING], "next_cursor": "" if last else "3.1"}
        if path.endswith("/verification"):
            faults = [] if self.sound else ["entry 3 or one before it was changed"]
            return {"sound": self.sound, "entries": 3, "postings": 9, "head": "ab", "faults": faults, "seconds": 0.1}
        if path.endswith("/summary"):
            task = {"task_id": "tsk_1", "escrow_microcredits": 1, "paid_microcredits": 2, "rounds": 3}
            earner = {"device_id": "dev_1", "owner_id": "own_1", "paid_microcredits": 2, "payments": 1}
            lists = {"tasks": [task], "earners": [earner], "anomalies": ["payment 1: far from the median"]}
            return {"outstanding_microcredits": 1, "paid_microcredits": 2, **lists}
        return {"id": "publisher:pub_1", "balance_microcredits": 2_500_000, "opened_at": 0.0}


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    stand = Stand()
    monkeypatch.setattr(payments, "connect", lambda url, key: stand)
    return stand


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(payments.app, list(arguments), env={"COLUMNS": "250"}, catch_exceptions=False)
    return result.exit_code, result.output


def test_payments_are_listed_with_their_reasons(stand: Stand) -> None:
    code, text = run("list", "--task", "digits", "--since", "2026-01-01T00:00+00:00", "--limit", "2", "--json")
    assert code == 0
    assert [payment["number"] for payment in json.loads(text)] == [9, 8]
    wanted = {"since": 1_767_225_600.0, "task": "tsk_of_digits", "limit": 500}
    assert stand.requests == [("GET", "/v1/payments", wanted)]
    assert "0.411000" in run("list")[1]


def test_csv_holds_every_column_and_no_formula(stand: Stand, tmp_path: Path) -> None:
    assert run("list", "--csv", str(tmp_path / "out.csv"))[0] == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert len(rows) == 3
    assert rows[0]["because"] == "'" + str(PAYMENT["because"])
    assert rows[0]["amount_microcredits"] == "411000"
    assert run("statement", "--csv", "-")[1].splitlines()[0] == "entry,at,account_id,amount_microcredits,kind,note"


def test_a_statement_puts_its_pages_together_and_defaults_to_ones_own(stand: Stand) -> None:
    code, text = run("statement", "--json")
    assert code == 0
    assert len(json.loads(text)["items"]) == 2
    assert {path for _, path, _ in stand.requests} == {"/v1/accounts/device:dev_1/statement"}
    assert "device:dev_1: 0.000000 before, 0.822000 after" in run("statement", "device:dev_1")[1]


def test_an_unsound_book_ends_with_code_1_and_its_faults(stand: Stand) -> None:
    assert run("verify")[0] == 0
    stand.sound = False
    code, text = run("verify")
    assert code == 1
    assert "entry 3 or one before it was changed" in text


def test_a_deposit_is_in_credits_and_has_a_reference(stand: Stand) -> None:
    code, text = run("deposit", "pub_1", "2.5", "--reference", "invoice-17")
    assert (code, "2.500000" in text) == (0, True)
    expected = {"amount_microcredits": 2_500_000, "key": "invoice-17"}
    assert stand.requests == [("POST", "/v1/accounts/pub_1/deposits", expected)]


def test_totals_show_what_stands_out(stand: Stand) -> None:
    code, text = run("summary", "--task", "digits")
    assert code == 0
    assert stand.requests == [("GET", "/v1/payments/summary", {"task": "tsk_of_digits"})]
    assert "payment 1: far from the median" in text
    assert "0.000002" in text


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "0.0000001", "nan", "inf", "1e-7"])
def test_an_amount_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(Mistake):
        payments.microcredits(text)


def test_amounts_are_exact_both_ways() -> None:
    assert payments.microcredits("9007199254740993.000001") == 9_007_199_254_740_993_000_001
    assert payments.credits(-9_007_199_254_740_993_000_001) == "-9007199254740993.000001"


def test_a_date_that_is_none_is_refused() -> None:
    with pytest.raises(Mistake, match="2026-01-31"):
        payments.moment("--since", "yesterday")
