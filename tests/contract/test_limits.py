"""Limits that the protocol states are those the code keeps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from services.trust.domain.checks import MOST_IDS
from services.trust.domain.matrices import MOST_ENTRIES
from services.trust.domain.reports import MOST_INTERACTIONS
from services.trust.usecases.imports import MOST_ROWS

TRUST = (Path(__file__).parents[2] / "protos/coterie_api/trust/v1/trust.proto").read_text()


@pytest.mark.parametrize(
    ("stated", "value"),
    [
        (r"Device ids, at most ([\d,]+)\.", MOST_IDS),
        (r"Devices, at most ([\d,]+); their order is the order of rows and columns", MOST_IDS),
        (r"holds at most ([\d,]+) pairs", MOST_ENTRIES),
        (r"1 to ([\d,]+) interactions", MOST_INTERACTIONS),
        (r"Each chunk \(at most ([\d,]+)", MOST_ROWS),
    ],
)
def test_a_stated_limit_is_the_limit(stated: str, value: int) -> None:
    result = re.findall(stated, TRUST)
    assert result, f"the protocol no longer says {stated}"
    assert {int(number.replace(",", "")) for number in result} == {value}
