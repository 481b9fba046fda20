"""Mesh networks from published files: a small generated sample of each format, and what is said when one is missing."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from coterie_lab.datasets.city import Habits, build_city
from coterie_lab.datasets.gowalla import CHECKINS, EDGES, read_friends, read_places
from coterie_lab.main import app
from coterie_lab.networks import city_graph, figures_of, gowalla_graph, graph_of, sampled_network
from services.topology.domain.betta_network import MeshNetwork
from services.trust.readers.lines import BadLine, MissingDataFile


def gowalla(folder: Path, people: int = 12) -> Path:
    """A ring of people, each of whom checks in at home twice and once at the next one's; 0 is at 48° north."""
    edges = [(k, (k + 1) % people) for k in range(people)]
    both = [f"{a}\t{b}\n" for pair in edges for a, b in (pair, pair[::-1])]
    with gzip.open(folder / f"{EDGES}.gz", "wt") as stream:
        stream.writelines(both)
    visits = [(k, place) for k in range(people) for place in (k, (k + 1) % people, k)]
    lines = [f"{k}\t2010-10-19T23:55:27Z\t{48 + 0.0002 * place}\t11.0\t{place}\n" for k, place in visits]
    (folder / CHECKINS).write_text("".join(lines))
    return folder


def is_connected(network: MeshNetwork) -> bool:
    network.require_connected()
    return True


def test_gowallas_people_are_where_they_check_in_most_and_friends_once(tmp_path: Path) -> None:
    """0.0002° of latitude are 22.2 metres: neighbours reach each other by Wi-Fi, those five further do not."""
    folder = gowalla(tmp_path)
    assert len(list(read_friends(folder))) == 12
    places = read_places(folder)
    assert places[1][1] - places[0][1] == pytest.approx(22.24, abs=0.01)
    ties, spots = gowalla_graph(folder)
    network = sampled_network(ties, spots, 8, seed=1)
    assert is_connected(network)
    assert network.devices == 8
    assert set(np.unique(network.link_seconds).tolist()) <= {0.0, 0.004654, 8.96}


def test_a_city_makes_connected_networks() -> None:
    city = build_city(300, 3, Habits(days=20))
    ties, places = city_graph(city.population, city.stays)
    for seed in range(3):
        network = sampled_network(ties, places, 10, seed)
        assert is_connected(network)
        assert network.trusted.sum() / 2 >= 9


@pytest.mark.slow
def test_networks_are_planned_beside_their_social_graph(tmp_path: Path) -> None:
    result = figures_of(sampled_network(*gowalla_graph(gowalla(tmp_path)), 8, seed=1))
    assert result["pseudo time, s"] <= result["social graph's, s"] * (1 + 1e-9)
    assert result["social links"] >= 7


def test_a_missing_file_is_named_with_its_source(tmp_path: Path) -> None:
    with pytest.raises(MissingDataFile, match=r"loc-gowalla_totalCheckins.txt is missing .*snap.stanford.edu"):
        graph_of("gowalla", tmp_path)
    with pytest.raises(MissingDataFile, match=r"objects_description.csv is missing .*social-iot.org"):
        graph_of("santander", tmp_path)


def test_a_bad_check_in_is_named_by_its_line(tmp_path: Path) -> None:
    folder = gowalla(tmp_path)
    with (folder / CHECKINS).open("a") as stream:
        stream.write("3\t2010-10-19T23:55:27Z\t480.0\t11.0\t3\n")
    with pytest.raises(BadLine, match="line 37: latitude and longitude are degrees"):
        read_places(folder)


def test_a_sample_of_gowalla_becomes_rows_that_go_on_where_they_stopped(
    tmp_path: Path,
) -> None:
    folder = gowalla(tmp_path)
    arguments = ["rows", "gowalla", str(folder), "--users", "5", "--seed", "2", "--at", "1000"]
    printed = CliRunner().invoke(app, arguments, catch_exceptions=False)
    header, *made = printed.stdout.splitlines()
    assert '"lines":9' in header, "five people of a ring know each other along four ties"
    assert len(made) == 9
    again = CliRunner().invoke(app, [*arguments, "--after", "7"], catch_exceptions=False)
    assert again.stdout.splitlines()[1:] == made[7:]
