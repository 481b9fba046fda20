"""This code against 0.1.0 in the same run, runs alternating: `python bench/_against_0_1_0.py [--runs 3] [--quick]`.

Checks the released code out into a temporary folder and runs the same benchmarks on both: a round's own cost at 20 and
1,000 devices, requests a second, and cluster formation at 10,000 devices. Prints the median of each figure, the ratio,
and whether it is more than 10 % worse. Both sides run on the dependencies installed here. Takes a quarter of an hour;
on a busy machine only the CPU figures mean something.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path

RELEASED = "73894384f06353add046796d5716d0a5d2cc2e8e"
"""The released code, with the dumps that were made on it."""
WORSE = 1.10
HERE = Path(__file__).parents[1]
SOURCES = (".", "protos", "clients/coterie/src", "clients/cli/src", "clients/lab/src")
Figures = dict[str, float]
"""By name; names that end in "/s" are better when larger, all others when smaller."""


def release(folder: Path) -> Path:
    """The released code in a folder."""
    done = subprocess.run(["git", "archive", RELEASED], cwd=HERE, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def run(tree: Path, script: str, *arguments: str, **settings: str) -> str:
    """What a benchmark prints on a tree: the tree's own, or one given by its whole path."""
    paths = os.pathsep.join(str(tree / source) for source in SOURCES)
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | settings
    command = [sys.executable, str(tree / "bench" / script), *arguments]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{script} failed on {tree}:\n{done.stdout}{done.stderr}")
    return done.stdout


def rounds(tree: Path, size: int) -> Figures:
    """Milliseconds of a round, and of everybody's CPU for it."""
    told = run(tree, "rounds.py", str(size))
    median = re.search(r"median (\d+) ms a round", told)
    spent = re.search(r"CPU a round: (.*)", told)
    assert median is not None
    assert spent is not None
    by_service = re.findall(r"(\w+) (\d+) ms", spent[1])
    cpu = sum(float(value) for name, value in by_service if name != "fleet")
    return {f"round of {size}, ms": float(median[1]), f"round of {size}, CPU ms": cpu}


def requests(tree: Path, seconds: float) -> Figures:
    """Requests a second of each route, and what one costs the gateway."""
    settings = {}
    if tree != HERE:  # its registry has a port, and no socket
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            settings = {"COTERIE_TRUST_ADDRESS": f"127.0.0.1:{probe.getsockname()[1]}"}
    told = run(tree, str(HERE / "bench" / "gateway.py"), "--seconds", str(seconds), **settings)
    found = re.findall(r"^(\w+ /\S+)\s+(\d+) requests/s.* (\d+) us CPU", told, re.MULTILINE)
    assert found, told
    rates = {f"{route}, /s": float(rate) for route, rate, _ in found}
    return rates | {f"{route}, gateway CPU us": float(cpu) for route, _, cpu in found}


def clusters(tree: Path, size: int) -> Figures:
    """CPU seconds of forming clusters."""
    told = run(tree, "clusters_scale.py", "--sizes", str(size)).splitlines()[-1].split()
    assert int(told[0]) == size
    return {f"clusters of {size}, CPU s": float(told[2])}


def main() -> int:
    """Measures both in turn; 1 when a figure is too much worse."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="20 devices and 1,000 in clusters, to try the script")
    options = parser.parse_args()
    sizes, crowd, seconds = ([20], 1_000, 1.0) if options.quick else ([20, 1_000], 10_000, 5.0)
    with tempfile.TemporaryDirectory(prefix="coterie-0.1.0-") as folder:
        trees = {"0.1.0": release(Path(folder)), "now": HERE}
        found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for number in range(options.runs):
            for name, tree in sorted(trees.items(), reverse=bool(number % 2)):
                print(f"run {number + 1} of {options.runs}: {name}", file=sys.stderr, flush=True)
                for figures in (
                    *(rounds(tree, size) for size in sizes),
                    requests(tree, seconds),
                    clusters(tree, crowd),
                ):
                    for figure, value in figures.items():
                        found[figure][name].append(value)
    return tell(found)


def tell(found: dict[str, dict[str, list[float]]]) -> int:
    """Prints the table."""
    print(f"{os.cpu_count()} cores; medians of {len(next(iter(found.values()))['now'])} runs each, alternating")
    print(f"{'':48} {'0.1.0':>10} {'now':>10}   worse by (goal: 10 % at most)")
    failed = 0
    for figure, values in found.items():
        before, now = statistics.median(values["0.1.0"]), statistics.median(values["now"])
        ratio = before / now if figure.endswith("/s") else now / before
        failed += ratio > WORSE
        verdict = "  too much" if ratio > WORSE else ""
        print(f"{figure:48} {before:10.2f} {now:10.2f}   {ratio - 1:+7.1%}{verdict}   {spread(values)}")
    print(f"{failed} of {len(found)} figures are more than {WORSE - 1:.0%} worse" if failed else "all within the goal")
    return 1 if failed else 0


def spread(values: dict[str, list[float]]) -> str:
    """The least and the most of each side, to see what a ratio is worth."""
    return "  ".join(f"{name} {min(runs):.2f} to {max(runs):.2f}" for name, runs in sorted(values.items()))


if __name__ == "__main__":
    sys.exit(main())
