"""Santander's files and generated cities: read, written, and printed as rows of an import."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from coterie_lab.datasets import santander
from coterie_lab.datasets.city import KINDS, Habits, InvalidCity, build_city, owners_of
from coterie_lab.main import app
from services.trust.domain.relations import derive
from services.trust.readers.lines import BadLine
from tests.unit.coterie_lab.city_files import write_city


def printed(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    result = CliRunner().invoke(app, ["rows", *arguments])
    return result.exit_code, [json.loads(line) for line in result.stdout_bytes.splitlines()]


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
    result = {block.kind.value for block in derive(city.population, city.stays)}
    assert result == {"ownership", "parental", "co-location", "social", "social-public"}


def test_a_city_of_one_person_and_of_none() -> None:
    assert set(build_city(1, seed=0).population.owners.tolist()) <= {0, 1}
    with pytest.raises(InvalidCity, match="at least one user"):
        build_city(0, seed=0)


def test_a_city_read_from_files_has_the_rows_of_the_one_written(tmp_path: Path) -> None:
    """The same devices and the same ties, the first labelled synthetic and the second not."""
    city = build_city(12, 3, Habits(days=4))
    write_city(tmp_path / "town", city.population, city.stays)
    asked = ("--name", "town", "--at", "1000")
    _, made = printed("city", "--users", "12", "--seed", "3", "--days", "4", *asked)
    _, read = printed("santander", str(tmp_path / "town"), *asked)
    assert (made[0]["synthetic"], read[0]["synthetic"]) == (True, False)
    assert [row["line"] for row in made[1:]] == list(range(1, made[0]["lines"] + 1))
    assert [ends(row) for row in read[1:]] == [ends(row) for row in made[1:]]
    devices = [row for row in made[1:] if "device" in row]
    assert len(devices) == len(city.population)
    assert devices[0]["owner_name"] == f"town user {city.population.owners[0]}"
    assert any("location" in row["device"] for row in devices)


def ends(row: dict[str, Any]) -> object:
    return row["device"]["name"] if "device" in row else (row["relation"]["a"], row["relation"]["b"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--users", "0"), "at least one user, not 0"), (("--days", "nan"), "--days must be more than 0")],
)
def test_a_senseless_city_is_refused_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["rows", "city", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
