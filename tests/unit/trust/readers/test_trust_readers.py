"""Readers: streams with line numbers, resumable, errors by file and line; a synthetic city written and read back."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import numpy as np
import pytest

from services.trust.domain.city import KINDS, InvalidCity, build_city, owners_of
from services.trust.domain.relations import derive
from services.trust.readers import santander
from services.trust.readers.interactions import ReportedInteraction, read_interactions
from services.trust.readers.lines import BadLine, MissingDataFile
from services.trust.readers.snap import Edge, read_ties
from tests.unit.trust.city_files import write_city

EDGES = "# a comment\n0 1\n\n1\t2\n2 0\n"


@pytest.mark.parametrize("name", ["edges.txt", "edges.txt.gz"])
def test_an_edge_list_is_read_with_line_numbers_and_resumed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(EDGES.encode()) if name.endswith(".gz") else EDGES.encode())
    assert list(read_ties(path)) == [Edge(2, 0, 1), Edge(4, 1, 2), Edge(5, 2, 0)]
    assert list(read_ties(path, skip_lines=4)) == [Edge(5, 2, 0)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 1\n0\n", "edges.txt, line 2: expected 2 fields"),
        ("0 1\n0 x\n", "line 2: node must be a number, not 'x'"),
        ("0 1.5\n", "line 1: node must be a whole number"),
        ("0 nan\n", "line 1: node must be finite"),
        ("3 3\n", "line 1: a tie joins two different nodes"),
        ("-1 3\n", "line 1: a tie joins"),
    ],
)
def test_a_bad_edge_is_named_by_file_and_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "edges.txt").write_text(text)
    with pytest.raises(BadLine, match=says):
        list(read_ties(tmp_path / "edges.txt"))


def test_what_comes_before_a_bad_line_is_yielded(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("0 1\noops\n")
    reader = read_ties(tmp_path / "edges.txt")
    assert next(reader) == Edge(1, 0, 1)
    with pytest.raises(BadLine) as caught:
        next(reader)
    assert caught.value.details == {"line": "2"}


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_bytes(b"0 1\n\xff\xfe\n")
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(EDGES.encode() * 1000)[:-20])
    for name in ("edges.txt", "cut.txt.gz"):
        with pytest.raises(BadLine, match=f"{name}, after line"):
            list(read_ties(tmp_path / name))


def test_a_missing_file_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(MissingDataFile, match=r"facebook_combined.txt.gz is missing from .*snap.stanford.edu"):
        list(read_ties(tmp_path / "facebook_combined.txt.gz"))
    with pytest.raises(MissingDataFile, match=r"objects_description.csv is missing from .*social-iot.org"):
        santander.read_city(tmp_path)
    with pytest.raises(MissingDataFile, match=r"santander.tar.gz is missing"):
        santander.read_city(tmp_path / "santander.tar.gz")
    with tarfile.open(tmp_path / "empty.tar.gz", "w:gz"):
        pass
    with pytest.raises(MissingDataFile, match=r"objects_description.csv is missing from .*empty.tar.gz"):
        santander.read_city(tmp_path / "empty.tar.gz")


INTERACTIONS = "a,b,positive,duration,at\nann,bob,1,30,100\nbob,cy,FALSE,0.5,200.5\ncy,ann,yes,2,300\n"


def test_interactions_are_read_and_resumed(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("\ufeff" + INTERACTIONS, encoding="utf-8")
    everything = list(read_interactions(path))
    assert everything[1] == ReportedInteraction(3, "bob", "cy", False, 0.5, 200.5)
    assert [item.line for item in everything] == [2, 3, 4]
    assert list(read_interactions(path, skip_lines=3)) == everything[2:]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("ann,ann,1,1,1", "two different named devices"),
        (",ann,1,1,1", "two different named devices"),
        ("ann,bob,maybe,1,1", "positive must be one of"),
        ("ann,bob,1,-1,1", "duration must be ≥ 0"),
        ("ann,bob,1,1,inf", "at must be finite"),
        ("ann,bob,1,1", "expected 5 fields, found 4"),
    ],
)
def test_a_bad_interaction_is_named_by_line(tmp_path: Path, row: str, says: str) -> None:
    (tmp_path / "log.csv").write_text(f"{INTERACTIONS}{row}\n")
    with pytest.raises(BadLine, match=f"log.csv, line 5: .*{says}"):
        list(read_interactions(tmp_path / "log.csv"))


def test_interactions_need_their_header(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("ann,bob,1,30,100\n")
    with pytest.raises(BadLine, match="line 1: the header must be a,b,positive,duration,at"):
        list(read_interactions(tmp_path / "log.csv"))


def test_a_city_written_is_read_back(tmp_path: Path) -> None:
    city = build_city(60, seed=5)
    write_city(tmp_path / "city", city.population, city.stays)
    with tarfile.open(tmp_path / "city.tar.gz", "w:gz") as archive:
        for file in sorted((tmp_path / "city").iterdir()):
            archive.add(file, file.name)
    for source in (tmp_path / "city", tmp_path / "city.tar.gz"):
        population, stays = santander.read_city(source)
        for name in ("devices", "owners", "kinds", "brands", "models", "carriers"):
            assert np.array_equal(getattr(population, name), getattr(city.population, name))
        assert np.allclose(population.places, city.population.places, rtol=0, atol=1e-9, equal_nan=True)
        assert np.array_equal(stays.carriers, city.stays.carriers)
        assert np.allclose(stays.start, city.stays.start, rtol=0, atol=1e-8)
        assert np.allclose(stays.places, city.stays.places, rtol=0, atol=1e-9)


def test_the_files_of_a_city_can_be_resumed(tmp_path: Path) -> None:
    city = build_city(10, seed=1)
    write_city(tmp_path, city.population, city.stays)
    devices = list(santander.read_devices(tmp_path))
    assert devices[0].line == 2
    assert list(santander.read_devices(tmp_path, skip_lines=devices[6].line)) == devices[7:]
    stays = list(santander.read_stays(tmp_path, santander.PRIVATE_MOBILE))
    assert list(santander.read_stays(tmp_path, santander.PRIVATE_MOBILE, skip_lines=stays[-2].line)) == stays[-1:]


@pytest.mark.parametrize(
    ("file", "row", "says"),
    [
        (santander.OBJECTS, "0,1,1,1,1", "device ids start at 1"),
        (santander.OBJECTS, "1,1,1", "expected 5 fields"),
        (santander.PRIVATE_STATIC, "9,0.5,east", "y must be a number"),
        (santander.PRIVATE_MOBILE, "1728100,1728050,3,0,0", "a stop not before its start"),
        (santander.PUBLIC_MOBILE, "0,10,0,0,0", "carrier ≥ 1"),
    ],
)
def test_a_bad_line_of_a_city_is_named(tmp_path: Path, file: str, row: str, says: str) -> None:
    city = build_city(5, seed=1)
    write_city(tmp_path, city.population, city.stays)
    count = len((tmp_path / file).read_text().splitlines())
    with (tmp_path / file).open("a") as stream:
        stream.write(row + "\n")
    with pytest.raises(BadLine, match=f"{file}, line {count + 1}: .*{says}"):
        santander.read_city(tmp_path)


def test_a_synthetic_city_keeps_the_published_table() -> None:
    """Private counts are exactly ownership % × users; brand and model are both 0 for exactly one device per user."""
    city = build_city(4_000, seed=2)
    population = city.population
    assert city.label.startswith("synthetic")
    assert len(population) == 16_216
    counts = {kind.code: int((population.kinds == kind.code).sum()) for kind in KINDS}
    assert counts == {kind.code: owners_of(kind, 4_000) for kind in KINDS}
    assert (counts[1], counts[8], counts[13], counts[15]) == (3_640, 600, 7, 677)
    private = ~population.public
    assert set(population.owners[private].tolist()) == set(range(1, 4_001))
    unknown = (population.brands == 0) & (population.models == 0)
    assert np.array_equal(np.sort(population.owners[unknown]), np.arange(1, 4_001))
    assert np.array_equal(np.isnan(population.places[:, 0]), population.mobile)


def test_a_synthetic_city_stays_in_its_square_and_its_ten_days() -> None:
    stays = build_city(200, seed=3).stays
    assert stays.places.min() >= 0
    assert stays.places.max() <= 4_440
    assert stays.start.min() >= 0
    assert stays.stop.max() <= 864_000
    rests = (stays.stop - stays.start)[stays.carriers > 0]
    assert 350 < np.median(rests) < 480  # 410 s in the published city


def test_a_seed_is_a_city() -> None:
    one, same, other = (build_city(30, seed) for seed in (7, 7, 8))
    assert np.array_equal(one.stays.start, same.stays.start)
    assert np.array_equal(one.population.places, same.population.places, equal_nan=True)
    assert not np.array_equal(one.population.brands, other.population.brands)


def test_a_small_city_has_relations_of_every_derivable_kind() -> None:
    city = build_city(300, seed=4)
    found = {block.kind.value for block in derive(city.population, city.stays)}
    assert found == {"ownership", "parental", "co_location", "social", "social_public"}


def test_a_city_of_one_and_of_nobody() -> None:
    assert set(build_city(1, seed=0).population.owners.tolist()) <= {0, 1}
    with pytest.raises(InvalidCity, match="at least one user"):
        build_city(0, seed=0)
