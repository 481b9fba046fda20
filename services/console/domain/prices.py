"""The course of a task's prices over its rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from services.console.domain.words import MICRO, figure

Series = list[tuple[str, list[tuple[float, float]]]]


def course(quotes: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, Series]]:
    """Charts of a task's quotes: (title, unit, curves); only of what was offered at all.

    The unit price is the same for all devices in a market; bases and slopes of a survey differ, so their mean is drawn.
    """
    charts: list[tuple[str, str, Series]] = []
    for key, title, unit in (
        ("price_microcredits", "Price of one unit of privacy budget", "credits per unit of ρ"),
        ("base_microcredits", "Mean base payment", "credits"),
        ("slope_microcredits", "Mean payment lost per unit of noise variance", "credits"),
        ("most_microcredits", "Most a device could be paid", "credits"),
    ):
        points = [(float(quote["round"]), _mean(quote, key) / MICRO) for quote in quotes if quote["offers"]]
        if any(value for _, value in points):
            charts.append((title, unit, [(title, points)]))
    expected = [(float(quote["round"]), _expected(quote)) for quote in quotes if quote["offers"]]
    if any(value for _, value in expected):
        charts.append(("Mean budget the publisher expects a device to sell", "ρ", [("expected", expected)]))
    return charts


def _mean(quote: Mapping[str, Any], key: str) -> float:
    return fmean(float(offer[key]) for offer in quote["offers"])


def _expected(quote: Mapping[str, Any]) -> float:
    found = [figure(offer["expected"]) for offer in quote["offers"]]
    finite = [value for value in found if value is not None and value < float("inf")]
    return fmean(finite) if finite else 0.0
