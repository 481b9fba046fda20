"""Price history of a task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from coterie.records import Offer, Quote
from services.console.domain.words import MICRO

Series = list[tuple[str, list[tuple[float, float]]]]
_SHOWN: tuple[tuple[Callable[[Offer], int], str, str], ...] = (
    (lambda offer: offer.price_microcredits, "Price of one unit of privacy budget", "credits per unit of ρ"),
    (lambda offer: offer.base_microcredits, "Mean base payment", "credits"),
    (lambda offer: offer.slope_microcredits, "Mean payment lost per unit of noise variance", "credits"),
    (lambda offer: offer.most_microcredits, "Most a device could be paid", "credits"),
)


def course(quotes: Sequence[Quote]) -> list[tuple[str, str, Series]]:
    """Return the charts of a task's quotes as (title, unit, curves), without those that are zero throughout.

    A market has one unit price for all devices; in a survey, bases and slopes differ, so the charts show their mean.
    """
    charts: list[tuple[str, str, Series]] = []
    quoted = [quote for quote in quotes if quote.offers]
    for of, title, unit in _SHOWN:
        points = [(float(quote.round), fmean(of(offer) for offer in quote.offers) / MICRO) for quote in quoted]
        if any(value for _, value in points):
            charts.append((title, unit, [(title, points)]))
    expected = [(float(quote.round), _expected(quote)) for quote in quoted]
    if any(value for _, value in expected):
        charts.append(("Mean budget the publisher expects a device to sell", "ρ", [("expected", expected)]))
    return charts


def _expected(quote: Quote) -> float:
    finite = [offer.expected for offer in quote.offers if offer.expected < math.inf]
    return fmean(finite) if finite else 0.0
