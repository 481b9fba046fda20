"""Accounts, payments and the verification of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from coterie.client.rest import VERIFY_SECONDS, RestClient
from coterie.records import Account, Payment, Posting, Statement, Summary, Verification

STATEMENT_ITEMS = 1000


class Money(RestClient):
    """Money is integer micro-credits. Times are Unix seconds; 0 is the beginning, or now."""

    def accounts(self, prefix: str = "") -> Iterator[Account]:
        """Accounts in order of id; a prefix such as `device:` narrows them."""
        return self.pages(Account, "/v1/accounts", prefix=prefix)

    def account(self, account_id: str) -> Account:
        """One account."""
        return self.ask(Account, "GET", f"/v1/accounts/{account_id}")

    def statement(self, account_id: str, *, since: float = 0.0, until: float = 0.0) -> Statement:
        """An account's postings over a period with the balances around it, all pages in one."""
        items: list[Posting] = []
        params = {"since": since, "until": until, "limit": STATEMENT_ITEMS, "cursor": ""}
        while True:
            page = self.ask(Statement, "GET", f"/v1/accounts/{account_id}/statement", params=params)
            items += page.items
            if not page.next_cursor:
                return replace(page, items=tuple(items))
            params["cursor"] = page.next_cursor

    def deposit(self, publisher: str, amount_microcredits: int, *, key: str) -> Account:
        """Puts credits into a publisher's account; the same key counts once."""
        body = {"amount_microcredits": amount_microcredits, "key": key}
        return self.ask(Account, "POST", f"/v1/accounts/{publisher}/deposits", json=body, idempotent=True)

    def payments(
        self, *, task: str = "", device: str = "", owner: str = "", since: float = 0.0, until: float = 0.0
    ) -> Iterator[Payment]:
        """Payments, newest first; of a task, to a device or to an owner's devices."""
        return self.pages(Payment, "/v1/payments", task=task, device=device, owner=owner, since=since, until=until)

    def payment_summary(self, task: str = "") -> Summary:
        """Outstanding escrow, top earners, what tasks cost, and what stands out."""
        return self.ask(Summary, "GET", "/v1/payments/summary", params={"task": task})

    def verify_book(self) -> Verification:
        """Adds the whole book up again and checks its hash chain."""
        path = "/v1/payments/verification"
        return self.ask(Verification, "POST", path, idempotent=True, wait_seconds=VERIFY_SECONDS)
