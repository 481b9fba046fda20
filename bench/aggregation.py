"""Aggregation: fold 20 updates of 100 MB; the aggregator's peak memory and speed beside plain numpy on the same files.

The fold is the server's own: safetensors layout, checks of every value, exact fixed-point sum, new model written. The
baseline reads the same files with numpy and adds them in float32, checking nothing.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

ELEMENTS = 25_000_000
UPDATES = 20
TENSORS = 5


def write_updates(folder: Path) -> list[Path]:
    """Updates of 100 MB in five tensors each; the same four files are used in turn to spare the disk."""
    paths = []
    for number in range(4):
        rng = np.random.default_rng(number)
        size = ELEMENTS // TENSORS
        tensors = {f"layer{i}": rng.standard_normal(size, np.float32) for i in range(TENSORS)}
        paths.append(folder / f"update{number}.safetensors")
        save_file(tensors, paths[-1])
    return [paths[i % 4] for i in range(UPDATES)]


def fold(paths: list[Path], folder: Path) -> float:
    """Seconds to fold all updates with the server's accumulator."""
    from functools import partial

    from services.aggregation.domain.accumulator import Accumulator, choose_scale
    from services.aggregation.domain.layout import PREFIX_BYTES, header_length, parse
    from services.aggregation.domain.model_steps import add_change
    from services.kit.database.blobs import BlobStore

    def read(path: Path, start: int, length: int) -> memoryview:
        return blobs.read(digests[path], start, length)

    blobs = BlobStore.in_folder(folder / "blobs")
    digests = {path: blobs.put_pieces(_pieces(path))[0] for path in set(paths)}
    size = paths[0].stat().st_size
    header = bytes(read(paths[0], PREFIX_BYTES, header_length(bytes(read(paths[0], 0, PREFIX_BYTES)), size)))
    layout = parse(header, size)
    started = time.perf_counter()
    total = Accumulator(layout, choose_scale(len(paths), 1.0), len(paths))
    for path in paths:
        total.fold(layout, partial(read, path), 1.0)
    seconds = time.perf_counter() - started
    base = partial(read, paths[0])
    blobs.put_pieces(add_change(layout, bytes(base(0, layout.header_bytes)), base, total.means()))
    total.close()
    return seconds


def _pieces(path: Path):  # type: ignore[no-untyped-def]
    with path.open("rb") as file:
        while piece := file.read(4 << 20):
            yield piece


def add_plainly(paths: list[Path]) -> float:
    """Seconds to read and add all updates with numpy."""
    started = time.perf_counter()
    total = np.zeros(ELEMENTS, np.float32)
    for path in paths:
        data = np.fromfile(path, np.float32, offset=path.stat().st_size - ELEMENTS * 4)
        total += data
    return time.perf_counter() - started


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_updates(folder)
        reports = {}
        for part in ("fold", "plain", "fold", "plain"):
            out = subprocess.run([sys.executable, __file__, part, name], capture_output=True, text=True, check=True)
            seconds, peak = map(float, out.stdout.split())
            best = reports.get(part, (float("inf"), 0.0))
            reports[part] = (min(best[0], seconds), max(best[1], peak))
        model_bytes = paths[0].stat().st_size
    megabytes = UPDATES * model_bytes / 1e6
    for part, (seconds, peak) in reports.items():
        memory = f"peak memory {peak / 1e6:.0f} MB ({peak / model_bytes:.2f} × model)"
        print(f"{part:6} {megabytes / seconds:8.0f} MB/s   {memory}")
    print(f"ratio  {reports['plain'][0] / reports['fold'][0]:8.2f} of plain numpy's speed (goal: at least 0.5)")


def part(name: str, folder: Path) -> None:
    paths = [folder / f"update{i % 4}.safetensors" for i in range(UPDATES)]
    seconds = fold(paths, folder) if name == "fold" else add_plainly(paths)
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        part(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
