"""Accounts with their statements, and verification of the book."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from coterie.records import Account, Posting, Statement, Task, Verification
from services.console.components.actions import handler
from services.console.components.blocks import button, card, empty, facts, link_button, note, text
from services.console.components.contexts import PageContext
from services.console.components.tables import Column, table
from services.console.domain import words
from services.console.domain.names import Names

KINDS = {
    "": "All accounts",
    "publisher:": "Publishers",
    "escrow:": "Escrows of tasks",
    "device:": "Devices",
    "owner:": "Owners",
    "platform:": "The platform",
}
MOST_ACCOUNTS = 2_000
MOST_POSTINGS = 500
COLUMNS = (
    Column("whose", "Holder", "link"),
    Column("balance", "Balance, credits", "number"),
    Column("opened", "Opened"),
    Column("account", "Account"),
)
POSTINGS = (
    Column("at", "When"),
    Column("kind", "Kind"),
    Column("amount", "Credits", "number"),
    Column("balance", "Balance", "number"),
    Column("note", "Remark", wrap=True),
    Column("entry", "Entry", "number"),
)


async def show(context: PageContext, names: Names, tasks: Mapping[str, Task], query: Mapping[str, str]) -> None:
    """Draw all accounts for admins, the own account for publishers, and the requested statement."""
    if query["account"]:
        await _statement(context, query["account"], names, tasks)
    if context.is_admin:
        await _list(context, names, tasks)
        return
    if not query["account"]:
        await _statement(context, f"publisher:{context.person.subject}", names, tasks)
    escrows = [key for key, item in tasks.items() if item.specification.escrow_microcredits]
    with card("Escrows of your tasks"):
        if not escrows:
            empty("account_balance", "None of your tasks has an escrow.", "Set an escrow when you publish a task.")
        for key in escrows:
            link_button(tasks[key].specification.name, "savings", f"/payments?account=escrow:{key}")


async def _list(context: PageContext, names: Names, tasks: Mapping[str, Task]) -> None:
    with card("Accounts", "Balances of all accounts. An account opens with its first posting."):
        select = ui.select(KINDS, value="", label="Kind").props("outlined dense").style("width: 200px")
        place = ui.element("div").classes("c-stack")

    async def draw() -> None:
        result = await context.platform.read_all(
            Account, "/v1/accounts", most=MOST_ACCOUNTS, prefix=str(select.value or "")
        )
        place.clear()
        with place:
            rows = [_account(context, names, tasks, item) for item in result]
            nothing = (
                "account_balance",
                "No accounts of this kind.",
                "Deposit credits with `coterie payments deposit`.",
            )
            table(COLUMNS, rows, label="Accounts", nothing=nothing, search=True, csv_name="accounts.csv")

    await draw()
    select.on_value_change(handler(context, draw))


def _account(context: PageContext, names: Names, tasks: Mapping[str, Task], account: Account) -> dict[str, Any]:
    return {
        "id": account.id,
        "whose": whose(account.id, names, tasks),
        "whose_href": f"/payments?account={account.id}",
        "balance": words.credits(account.balance_microcredits),
        "balance_sort": account.balance_microcredits / words.MICRO,
        "opened": context.moment(account.opened_at),
        "account": account.id,
    }


def whose(account_id: str, names: Names, tasks: Mapping[str, Task]) -> str:
    """Return the holder of an account, by name where it is known."""
    kind, _, rest = account_id.partition(":")
    if kind == "escrow" and rest in tasks:
        return f"escrow of {tasks[rest].specification.name}"
    return names.account(account_id)


async def _statement(context: PageContext, account: str, names: Names, tasks: Mapping[str, Task]) -> None:
    path = f"/v1/accounts/{account}/statement"
    result = await context.platform.read(Statement, path, limit=MOST_POSTINGS)
    balance = result.opening_microcredits
    rows = []
    for item in result.items:
        balance += item.amount_microcredits
        rows.append(_posting(context, item, balance))
    about = "Every posting, newest first." if not result.next_cursor else f"The first {MOST_POSTINGS} postings."
    with card(f"Statement: {whose(account, names, tasks)}", about):
        with ui.element("div").classes("c-row"):
            text(f"Balance {words.credits(result.account.balance_microcredits)} credits", "c-strong")
            link_button("Download CSV", "download", f"/files/statements/{account}")
        nothing = ("receipt_long", "No postings yet.", "Postings appear with deposits and settled rounds.")
        table(POSTINGS, list(reversed(rows)), key="row", label="Statement", nothing=nothing, search=len(rows) > 12)


def _posting(context: PageContext, posting: Posting, balance: int) -> dict[str, Any]:
    return {
        "row": f"{posting.entry}-{posting.amount_microcredits}-{posting.note}",
        "at": context.moment(posting.at),
        "at_sort": posting.at,
        "kind": posting.kind,
        "amount": ("+" if posting.amount_microcredits > 0 else "") + words.credits(posting.amount_microcredits),
        "amount_sort": posting.amount_microcredits / words.MICRO,
        "balance": words.credits(balance),
        "balance_sort": balance / words.MICRO,
        "note": posting.note,
        "entry": posting.entry,
    }


async def show_book(context: PageContext, names: Names, tasks: Mapping[str, Task], query: Mapping[str, str]) -> None:
    """Draw the card that verifies the whole book on request."""
    with card(
        "The book",
        "Double entry: every payment debits one account and credits another. A hash chain protects the entries.",
    ):
        text("The check recomputes every balance and verifies the hash chain from the first entry to the last.")
        place = ui.element("div").classes("c-stack")

        async def verify() -> None:
            place.clear()
            with place:
                ui.spinner(size="lg")
                text("Checking …", "c-faint")
            result = await context.platform.verify_book()
            place.clear()
            with place:
                _verdict(result)

        button("Check the book", "fact_check", handler(context, verify), "c-primary")


def _verdict(verification: Verification) -> None:
    if verification.sound:
        note("verified", "The book is correct: all entries balance and the hash chain is intact.", "good")
    else:
        note("error", "The book has errors. Stop payments and investigate.", "bad")
        for fault in verification.faults:
            note("report", fault, "bad")
    facts(
        [
            ("Entries", f"{verification.entries:,}"),
            ("Postings", f"{verification.postings:,}"),
            ("Duration", words.span(verification.seconds)),
            ("Hash of the last entry", verification.head),
        ]
    )
