"""Quotes in the database."""

from __future__ import annotations

import json
from dataclasses import asdict
from dataclasses import replace as changed
from functools import cache
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from coterie.records.enums import QuoteStatus
from services.kit.database.rows import Tx, inserting_for
from services.pricing.domain.records import Offer, Quote, Terms
from services.pricing.tables import quotes

_FIELDS = attrgetter(*(name for name in Offer.__slots__ if name != "terms"))


# Compiled once: these statements run in every round.
_QUOTE = sa.select(quotes).where(quotes.c.task_id == sa.bindparam("p_task"), quotes.c.round == sa.bindparam("p_round"))
_QUOTE_LOCKED = _QUOTE.with_for_update()


@cache
def _adding(dialect: str) -> Any:
    return inserting_for(dialect, quotes).on_conflict_do_nothing(index_elements=["task_id", "round"])


async def find(tx: Tx, task_id: str, round_number: int, *, lock: bool = False) -> Quote | None:
    """Return a round's quote; `lock` locks its row until the transaction ends."""
    query = _QUOTE_LOCKED if lock else _QUOTE
    row = (await tx.execute(query, {"p_task": task_id, "p_round": round_number})).one_or_none()
    if row is None:
        return None
    offers = tuple(_offer(*offer) for offer in json.loads(row.offers))
    return Quote(
        task_id=row.task_id,
        round=row.round,
        incentive=row.incentive,
        status=QuoteStatus(row.status),
        offers=offers,
        pot_microcredits=row.pot,
        details=json.loads(row.details),
    )


async def add(tx: Tx, quote: Quote, at: float) -> bool:
    """Store a quote unless the round has one; return whether it was stored."""
    row = {"task_id": quote.task_id, "round": quote.round, **_row(quote), "at": at}
    result = await tx.execute(_adding(tx.dialect.name), row)
    return bool(result.rowcount)


async def replace(tx: Tx, quote: Quote) -> None:
    """Replace the round's stored quote."""
    condition = (quotes.c.task_id == quote.task_id) & (quotes.c.round == quote.round)
    await tx.execute(sa.update(quotes).where(condition).values(**_row(quote)))


def _row(quote: Quote) -> dict[str, object]:
    return {
        "incentive": quote.incentive,
        "status": quote.status,
        "pot": quote.pot_microcredits,
        "offers": json.dumps([[*_FIELDS(offer), _terms_json(offer.terms)] for offer in quote.offers]),
        "details": json.dumps(quote.details),
    }


def _offer(*values: Any) -> Offer:
    """Return a stored offer: its terms are JSON text, empty when there are none."""
    *most, text = values
    return changed(Offer(*most), terms=_terms(json.loads(text))) if text else Offer(*most)


def _terms(fields: dict[str, Any]) -> Terms:
    return Terms(**fields | {name: tuple(fields[name]) for name in ("trust", "hidden")})


def _terms_json(terms: Terms | None) -> str:
    return "" if terms is None else json.dumps(asdict(terms))
