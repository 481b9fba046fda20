"""Accounts with their statements, and the check of the whole book."""

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
    Column("whose", "Whose", "link"),
    Column("balance", "Balance, credits", "number"),
    Column("opened", "Opened"),
    Column("account", "Account"),
)
POSTINGS = (
    Column("at", "When"),
    Column("kind", "What"),
    Column("amount", "Credits", "number"),
    Column("balance", "Balance", "number"),
    Column("note", "Remark", wrap=True),
    Column("entry", "Entry", "number"),
)


async def show(context: PageContext, names: Names, tasks: Mapping[str, Task], asked: Mapping[str, str]) -> None:
    """The list for admins, the own account for publishers; a statement when one is asked for."""
    if asked["account"]:
        await _statement(context, asked["account"], names, tasks)
    if context.is_admin:
        await _list(context, names, tasks)
        return
    if not asked["account"]:
        await _statement(context, f"publisher:{context.person.subject}", names, tasks)
    escrows = [key for key, item in tasks.items() if item.specification.escrow_microcredits]
    with card("Escrows of your tasks"):
        if not escrows:
            empty("account_balance", "None of your tasks has an escrow.", "Give a task an escrow when you publish it.")
        for key in escrows:
            link_button(tasks[key].specification.name, "savings", f"/payments?account=escrow:{key}")


async def _list(context: PageContext, names: Names, tasks: Mapping[str, Task]) -> None:
    with card("Accounts", "What everybody has. An account opens with its first posting."):
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
                "There is no such account.",
                "Deposit credits with `coterie payments deposit`.",
            )
            table(COLUMNS, rows, label="Accounts", nothing=nothing, search=True, csv_name="accounts.csv")

    await draw()
    select.on_value_change(handler(context, draw))


def _account(context: PageContext, names: Names, tasks: Mapping[str, Task], each: Account) -> dict[str, Any]:
    return {
        "id": each.id,
        "whose": whose(each.id, names, tasks),
        "whose_href": f"/payments?account={each.id}",
        "balance": words.credits(each.balance_microcredits),
        "balance_sort": each.balance_microcredits / words.MICRO,
        "opened": context.moment(each.opened_at),
        "account": each.id,
    }


def whose(account_id: str, names: Names, tasks: Mapping[str, Task]) -> str:
    """Whose an account is, with the names known here."""
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
            link_button("CSV of all", "download", f"/files/statements/{account}")
        nothing = ("receipt_long", "Nothing was posted.", "Postings appear with deposits and settled rounds.")
        table(POSTINGS, list(reversed(rows)), key="row", label="Statement", nothing=nothing, search=len(rows) > 12)


def _posting(context: PageContext, each: Posting, balance: int) -> dict[str, Any]:
    return {
        "row": f"{each.entry}-{each.amount_microcredits}-{each.note}",
        "at": context.moment(each.at),
        "at_sort": each.at,
        "kind": each.kind,
        "amount": ("+" if each.amount_microcredits > 0 else "") + words.credits(each.amount_microcredits),
        "amount_sort": each.amount_microcredits / words.MICRO,
        "balance": words.credits(balance),
        "balance_sort": balance / words.MICRO,
        "note": each.note,
        "entry": each.entry,
    }


async def show_book(context: PageContext, names: Names, tasks: Mapping[str, Task], asked: Mapping[str, str]) -> None:
    """Adds the whole book up again, when asked to."""
    with card(
        "The book",
        "Double entry: every payment leaves one account and enters another, and each entry seals the one before.",
    ):
        text("The check adds every entry up again and follows the chain of hashes from the first to the last.")
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


def _verdict(found: Verification) -> None:
    if found.sound:
        note("verified", "The book is sound: everything adds up and the chain is whole.", "good")
    else:
        note("error", "The book is not sound. Stop paying and find out why.", "bad")
        for fault in found.faults:
            note("report", fault, "bad")
    facts(
        [
            ("Entries", f"{found.entries:,}"),
            ("Postings", f"{found.postings:,}"),
            ("Took", words.span(found.seconds)),
            ("Hash of the last entry", found.head),
        ]
    )
