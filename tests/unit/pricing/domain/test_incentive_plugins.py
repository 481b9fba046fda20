"""An incentive of another distribution settles a round; a missing one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.plugins import Registry
from coterie.records.enums import ParticipationState, QuoteStatus
from services.kit.rpc.parameters import BadParameters
from services.pricing.domain import incentive_plugins
from services.pricing.domain.ledger_settlement import Work, compute_dues
from services.pricing.domain.records import Offer, Quote

MODULE = """
class Flat:
    def quote(self, task_id, round_number, devices, parameters, round_budget):
        raise NotImplementedError
    def due(self, offer, work):
        return 7, "a flat fee"
FLAT = Flat()
"""
WORK = Work("dev_a", "own_a", ParticipationState.DELIVERED, quality=1.0)


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "flat_incentive.py").write_text(MODULE)
    folder = tmp_path / "flat-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: flat\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[coterie.incentives]\nflat = flat_incentive:FLAT\nhalf = flat_incentive:__name__\n"
    )
    fresh = Registry("coterie.incentives", {}, incentive_plugins.require_incentive)
    monkeypatch.setattr(incentive_plugins, "REGISTRY", fresh)


def quote(incentive: str) -> Quote:
    return Quote("tsk", 1, incentive, QuoteStatus.OK, (Offer("dev_a"),))


@pytest.mark.usefixtures("plugins")
def test_incentive_of_plugin_settles_round() -> None:
    (due,) = compute_dues(quote("flat"), [WORK])
    assert (due.amount_microcredits, due.because) == (7, "a flat fee")


@pytest.mark.usefixtures("plugins")
def test_incomplete_incentive_is_named_with_its_distribution() -> None:
    with pytest.raises(BadParameters, match=r"no incentive 'half'.*flat 1\.0.*lacks quote, due"):
        compute_dues(quote("half"), [WORK])
