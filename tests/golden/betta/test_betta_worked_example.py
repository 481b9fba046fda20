"""The published example of [BETTA], Fig. 3 and Table IV: A..F are 0..5."""

import json
from io import StringIO
from typing import Any

import numpy as np
import pytest

from services.kit.runtime import whatif
from services.topology.domain.betta import evaluate_links, figures, local_iterate
from services.topology.domain.betta_fast import plan_mesh
from services.topology.domain.betta_network import MeshNetwork, MeshRules, pairs_to_adjacency
from services.topology.domain.betta_reference import plan_mesh_reference
from services.topology.domain.mixing import hitting_times, lazy_metropolis
from services.topology.whatif import SOLVERS

TRUST = {"AB": 4, "AD": 4, "AE": 48, "AF": 4, "BC": 29, "BE": 42, "CD": 31, "DF": 4}
UNTRUST = {"AC": 34, "BD": 4, "BF": 8, "CE": 7, "CF": 37, "DE": 45, "EF": 51}
BATCH_SECONDS = [1.0, 2.0, 7.0, 2.0, 7.0, 1.0]
FIG_3B = ["AB", "AD", "AF", "BC", "CD", "CE", "DE", "DF"]
TABLE_IV = [
    [0, 15, 16.5, 10.5, 25.3, 15.9],
    [11.3, 0, 11.3, 13.5, 23.6, 23.6],
    [16.5, 15, 0, 10.5, 15.9, 25.3],
    [13, 19.7, 13, 0, 18.8, 18.8],
    [18.4, 20.5, 9, 9.5, 0, 26],
    [9, 20.5, 18.4, 9.5, 26, 0],
]


def pair(name: str) -> tuple[int, int]:
    return ord(name[0]) - 65, ord(name[1]) - 65


def seconds() -> list[list[Any]]:
    table: list[list[Any]] = [["inf"] * 6 for _ in range(6)]
    for name, value in {**TRUST, **UNTRUST}.items():
        i, j = pair(name)
        table[i][j] = table[j][i] = value
    return table


def network() -> MeshNetwork:
    return MeshNetwork.build(6, [pair(name) for name in TRUST], np.array(seconds(), dtype=float), BATCH_SECONDS)


def test_hitting_times_are_those_of_table_iv() -> None:
    times = hitting_times(lazy_metropolis(pairs_to_adjacency(6, [pair(name) for name in FIG_3B])))
    assert np.allclose(times.round(1), TABLE_IV)


def test_fig_3b_has_the_printed_quantities() -> None:
    plan = evaluate_links(network(), MeshRules(), [pair(name) for name in FIG_3B])
    assert plan.figures.hitting_time == pytest.approx(25.967, abs=5e-4)
    assert plan.figures.local_iterate == 52.0
    assert plan.figures.spectral_gap == pytest.approx(0.18866, abs=5e-6)
    assert plan.figures.pseudo_training_time == pytest.approx(10834.6, abs=0.05)
    assert plan.dp_devices == (2, 3, 4)


def test_example_2_equations_hold() -> None:
    """m_BA = 1 + 2/3 m_BA + 1/6 m_CA + 1/6 m_AA, and the row of C."""
    adjacency = pairs_to_adjacency(6, [pair(name) for name in FIG_3B])
    mixing, times = lazy_metropolis(adjacency), hitting_times(lazy_metropolis(adjacency))
    assert mixing[1, 1] == pytest.approx(2 / 3)
    assert mixing[2].tolist() == pytest.approx([0, 1 / 6, 13 / 24, 1 / 8, 1 / 6, 0])
    assert times[1, 0] == pytest.approx(1 + 2 / 3 * times[1, 0] + 1 / 6 * times[2, 0])


@pytest.mark.parametrize("planner", [plan_mesh, plan_mesh_reference])
def test_the_winner_is_all_eight_trusted_links(planner: Any) -> None:
    plan = planner(network(), MeshRules(epsilon=1.0))
    assert plan.pairs == tuple(sorted(pair(name) for name in TRUST))
    assert (plan.dp_budget, plan.dp_devices) == (0, ())
    assert plan.figures.local_iterate == 55.0
    assert plan.figures.pseudo_training_time == pytest.approx(1428.20, abs=0.005)
    assert plan.batch_sizes.tolist() == [32, 208, 109, 384, 32, 1632]


def test_shared_transfers_are_summed_by_hand() -> None:
    """Device C of Fig. 3(b): r 7 + B 29 + D 31 + E 7 = 74; D: 2 + 4 + 31 + 45 + 4 = 86, the slowest."""
    adjacency = pairs_to_adjacency(6, [pair(name) for name in FIG_3B])
    assert local_iterate(network(), adjacency, "shared") == 86.0
    assert figures(network(), MeshRules(transfers="shared"), adjacency).local_iterate == 86.0


def test_the_what_if_gives_the_same_answer_with_every_key_of_the_contract() -> None:
    document = {
        "devices": 6,
        "trusted": [list(pair(name)) for name in TRUST],
        "link_seconds": seconds(),
        "batch_seconds": BATCH_SECONDS,
    }
    out = StringIO()
    assert whatif.run(SOLVERS, ["mesh"], StringIO(json.dumps(document)), out) == 0
    answer = json.loads(out.getvalue())
    assert set(answer) == {
        *("links", "dp_devices", "dp_budget", "batch_sizes", "mixing"),
        *("hitting_time", "local_iterate", "spectral_gap", "pseudo_training_time"),
    }
    assert answer["batch_sizes"] == [32, 208, 109, 384, 32, 1632]
    document["links"] = [list(pair(name)) for name in FIG_3B]
    out = StringIO()
    assert whatif.run(SOLVERS, ["mesh"], StringIO(json.dumps(document)), out) == 0
    answer = json.loads(out.getvalue())
    assert np.allclose(np.round(answer["hitting_times"], 1), TABLE_IV)
    assert answer["dp_devices"] == [2, 3, 4]
