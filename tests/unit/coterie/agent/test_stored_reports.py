"""Stored reports: exact metrics beside noise stay on the device."""

from __future__ import annotations

import json

from coterie.agent.report import Delivery, without_figures


def test_non_public_metrics_are_left_out_and_nothing_else_changes() -> None:
    stored = json.loads(Delivery(None, 3.0, "report", {"loss": 0.5}).report())
    stored.pop("public_metrics", None)
    assert json.loads(without_figures(json.dumps(stored))) == stored | {"metrics": {}}


def test_public_figures_and_reports_without_any_go_as_they_are() -> None:
    public = Delivery(None, 3.0, "report", {"accuracy": 0.9}, public_metrics=True).report()
    bare = Delivery(None, 3.0, "report").report()
    assert (without_figures(public), without_figures(bare)) == (public, bare)
