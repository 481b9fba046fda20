"""Quotes in the database."""

from __future__ import annotations

import json
from dataclasses import asdict
from dataclasses import replace as changed
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from coterie.records.words import QuoteStatus
from services.kit.rows import Tx, inserting
from services.pricing.domain.records import Offer, Quote, Terms
from services.pricing.tables import quotes

_FIELDS = attrgetter(*(name for name in Offer.__slots__ if name != "terms"))


async def find(tx: Tx, task_id: str, round_number: int, *, lock: bool = False) -> Quote | None:
    """A round's quote; `lock` keeps it as it is until the transaction ends."""
    query = sa.select(quotes).where(quotes.c.task_id == task_id, quotes.c.round == round_number)
    row = (await tx.execute(query.with_for_update() if lock else query)).one_or_none()
    if row is None:
        return None
    offers = tuple(_offer(*offer) for offer in json.loads(row.offers))
    return Quote(
        row.task_id, row.round, row.incentive, QuoteStatus(row.status), offers, row.pot, json.loads(row.details)
    )


async def add(tx: Tx, quote: Quote, at: float) -> bool:
    """Stores a quote unless the round has one; whether it did."""
    statement = inserting(tx, quotes).on_conflict_do_nothing(index_elements=["task_id", "round"])
    result = await tx.execute(statement, {"task_id": quote.task_id, "round": quote.round, **_row(quote), "at": at})
    return bool(result.rowcount)


async def replace(tx: Tx, quote: Quote) -> None:
    """Stores a quote in the place of the round's."""
    condition = (quotes.c.task_id == quote.task_id) & (quotes.c.round == quote.round)
    await tx.execute(sa.update(quotes).where(condition).values(**_row(quote)))


def _row(quote: Quote) -> dict[str, object]:
    return {
        "incentive": quote.incentive,
        "status": quote.status,
        "pot": quote.pot_microcredits,
        "offers": json.dumps([[*_FIELDS(offer), _told(offer.terms)] for offer in quote.offers]),
        "details": json.dumps(quote.details),
    }


def _offer(*values: Any) -> Offer:
    """An offer as stored: its terms are JSON text, empty when there are none."""
    *most, text = values
    return changed(Offer(*most), terms=_terms(json.loads(text))) if text else Offer(*most)


def _terms(told: dict[str, Any]) -> Terms:
    return Terms(**told | {name: tuple(told[name]) for name in ("trust", "hidden")})


def _told(terms: Terms | None) -> str:
    return "" if terms is None else json.dumps(asdict(terms))
