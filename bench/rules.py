"""Rules: `python bench/rules.py cost [devices …]`, `… memory [devices [elements]]`, `… pace [devices]`, `… worth`.

`cost`: processor seconds of every rule over stored updates of 100,000 numbers, beside numpy with everything in memory.
`memory`: the most that rules hold while they combine 1,000 stored updates of 1,000,000 numbers, 4 GB of files. `pace`:
time to the same accuracy over real REST with log-normal device speeds (σ = 1): rounds that wait for all, rounds with
quorum 0.8, and asynchronous ones. `worth`: contributions of 10 devices of different worth by sampling beside all 1,024
coalitions, and how long 100 devices take, over real REST. Without a name, all four.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when numpy is imported

import numpy as np
from safetensors.numpy import load, save

ELEMENTS = 100_000
MEDIAN_SECONDS = 0.8
TARGET = 0.92


# --- what a rule costs ----------------------------------------------------------------------------------------------


def cost(sizes: list[int]) -> None:
    """Processor seconds of every rule, from stored updates as the server does and with numpy where it is plain."""
    from services.aggregation.domain.rules.axis import rule_for
    from services.aggregation.domain.rules.combining import Combination
    from services.aggregation.store.updates import StoredUpdates

    for devices in sizes:
        f = devices // 10
        rules: list[tuple[str, str | None, dict[str, Any]]] = [
            ("mean", None, {}),
            ("median", None, {}),
            ("trimmed-mean", None, {"f": f}),
            ("mean-around-median", None, {"f": f}),
            ("centred-clipping", None, {"radius": 100.0, "iterations": 3}),
            ("geometric-median", None, {}),
            ("krum", None, {"f": f}),
            ("multi-krum", None, {"f": f}),
            ("trimmed-mean", "nnm", {"f": f}),
        ]
        with tempfile.TemporaryDirectory() as folder:
            blobs, layout, stored = store_updates(Path(folder), devices, ELEMENTS)
            matrix = StoredUpdates(blobs, layout, stored).read(0, ELEMENTS)
            for name, pre, parameters in rules:
                began = time.process_time()
                run = Combination(rule_for(name, parameters, pre), StoredUpdates(blobs, layout, stored))
                result = np.concatenate(list(run.chunks()))
                ours = time.process_time() - began
                began = time.process_time()
                plain = in_memory(name, matrix, f) if pre is None else None
                theirs = time.process_time() - began
                beside = "no plain form"
                if plain is not None:
                    ratio, gap = ours / max(theirs, 1e-9), np.abs(result - plain).max()
                    beside = f"numpy {theirs:6.2f} s, ratio {ratio:5.2f}, differs {gap:.0e}"
                label = f"{pre}+{name}" if pre else name
                print(f"{devices:5} devices  {label:20} {ours:6.2f} s   {beside}", flush=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{devices:5} devices  peak memory {peak:.2f} GB, of which numpy's matrix {matrix.nbytes / 1e9:.2f}")


def store_updates(folder: Path, devices: int, elements: int) -> Any:
    """Fill a blob store with updates; return it, their layout and their locations."""
    from services.aggregation.store.model_files import ModelFiles
    from services.aggregation.store.updates import StoredUpdate
    from services.kit.database.blobs import BlobStore

    blobs, rng, stored = BlobStore.in_folder(folder), np.random.default_rng(0), []
    files = ModelFiles(blobs)
    for _ in range(devices):
        digest, size = blobs.put_pieces(iter([save({"w": rng.standard_normal(elements, np.float32)})]))
        layout = files.layout(digest, size)
        stored.append(StoredUpdate(digest, 1.0, {tensor.name: tensor for tensor in layout.tensors}))
    return blobs, layout, stored


def memory(devices: int, elements: int) -> None:
    """Peak memory of this process while rules read what is stored; nothing else of that size is ever held."""
    from services.aggregation.domain.rules.axis import rule_for
    from services.aggregation.domain.rules.combining import Combination
    from services.aggregation.store.updates import StoredUpdates

    f = devices // 10
    with tempfile.TemporaryDirectory() as folder:
        blobs, layout, stored = store_updates(Path(folder), devices, elements)
        for name, pre in (("trimmed-mean", None), ("multi-krum", "nnm")):
            began = time.perf_counter()
            run = Combination(rule_for(name, {"f": f}, pre), StoredUpdates(blobs, layout, stored))
            length = sum(len(chunk) for chunk in run.chunks())
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            took = time.perf_counter() - began
            label = f"{pre}+{name}" if pre else name
            print(
                f"{devices} devices x {length} numbers  {label:16} {took:6.0f} s  peak {peak:.2f} GB (goal 2)",
                flush=True,
            )


def in_memory(name: str, matrix: np.ndarray, f: int) -> np.ndarray | None:
    """The rule as one would write it with everything in memory."""
    count = len(matrix)
    if name == "mean":
        return matrix.mean(axis=0)
    if name == "median":
        return np.median(matrix, axis=0)
    if name == "trimmed-mean":
        return np.sort(matrix, axis=0)[f : count - f].mean(axis=0)
    if name == "mean-around-median":
        away = np.abs(matrix - np.median(matrix, axis=0))
        nearest = np.argpartition(away, count - f - 1, axis=0)[: count - f]
        return np.take_along_axis(matrix, nearest, axis=0).mean(axis=0)
    if name == "centred-clipping":
        centre = np.zeros(matrix.shape[1])
        for _ in range(3):
            gaps = matrix - centre
            norms = np.linalg.norm(gaps, axis=1)
            centre = centre + (gaps * np.minimum(1.0, 100.0 / norms)[:, None]).mean(axis=0)
        return centre
    if name in ("krum", "multi-krum"):
        gram = matrix @ matrix.T
        square = np.diag(gram)[:, None] + np.diag(gram)[None] - 2 * gram
        scores = np.sort(square, axis=1)[:, 1 : count - f].mean(axis=1)
        best = np.argsort(scores, kind="stable")
        return matrix[best[: 1 if name == "krum" else count - f]].mean(axis=0)
    return None


# --- waiting for all, for most, for none ----------------------------------------------------------------------------


def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return (images[order] / 16.0).astype(np.float32), labels[order]


class Softmax:
    """A worker that trains softmax regression with numpy on its own few digits."""

    blocking = False

    def __init__(self, devices: int) -> None:
        images, labels = digits()
        self.test = images[:359], labels[:359]
        self._shards = np.array_split(np.arange(359, len(labels)), devices)
        self._images, self._labels = images, labels

    def deliver(self, member: Any, work: Any, model: Any) -> Any:
        from coterie.agent.report import Delivery

        own = self._shards[int(member.name.rpartition("-")[2])]
        weights = model["w"].astype(np.float64)
        images, targets = self._images[own], np.eye(10)[self._labels[own]]
        for _ in range(3):
            weights -= 0.5 * images.T @ (_softmax(images @ weights) - targets) / len(own)
        return Delivery({"w": (weights - model["w"]).astype(np.float32)}, float(len(own)))

    def accuracy(self, weights: np.ndarray) -> float:
        images, labels = self.test
        return float(((images @ weights).argmax(axis=1) == labels).mean())


def _softmax(values: np.ndarray) -> np.ndarray:
    raised = np.exp(values - values.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def pace(devices: int) -> None:
    """Seconds from the start of a task to the first version with the target accuracy, three ways in one run."""
    from coterie.client import Platform
    from coterie.protocol.transport import Backoff
    from coterie_cli.processes import PlatformProcesses

    worker = Softmax(devices)
    slow = np.random.default_rng(1).lognormal(math.log(MEDIAN_SECONDS), 1.0, devices)
    print(f"{devices} devices, seconds of work: median {np.median(slow):.2f}, slowest {slow.max():.1f}; seed 1")
    ways: dict[str, dict[str, Any]] = {
        "waits for all": {"quorum": 1.0, "rounds": 12, "round_seconds": 120.0},
        "quorum 0.8": {
            "quorum": 0.8,
            "min_devices": round(0.8 * devices),
            "rounds": 16,
            "round_seconds": float(np.quantile(slow, 0.85)) + 1.5,
        },
        "asynchronous": {
            "pace": "asynchronous",
            "rounds": 80,
            "parameters": {"asynchronous": {"buffer": max(devices // 10, 1), "staleness_limit": 200}},
            "keep_rounds": -1,
        },
    }
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        processes = PlatformProcesses.on_free_ports(Path(folder), {"COTERIE_LOG_LEVEL": "WARNING"})
        processes.start(wait_seconds=120.0)
        try:
            with Platform(processes.url, processes.admin_key(), backoff=Backoff(patience_seconds=120.0)) as admin:
                taken = {name: race(processes, admin, worker, slow, name, fields) for name, fields in ways.items()}
        finally:
            processes.stop()
    for name in list(ways)[:2]:
        print(f"asynchronous reaches {TARGET:.0%} {taken[name] / taken['asynchronous']:.1f} times sooner than {name}")


def race(processes: Any, admin: Any, worker: Softmax, slow: np.ndarray, name: str, fields: dict[str, Any]) -> float:
    task = admin.create_task(
        name=name,
        preset="fedavg",
        model_digests=[admin.upload_model(save({"w": np.zeros((64, 10), np.float32)}))],
        auto_start=True,
        **{"min_devices": len(slow)} | fields,
    ).id
    token = admin.issue_token(admin.create_owner(f"bench {name}").id, uses=len(slow)).token
    summary = asyncio.run(_run(processes.url, token, task, worker, slow))
    started = admin.task(task).started_at
    reached, best = math.inf, 0.0
    for model in admin.models(task):
        weights = load(admin.download_model(model.digest).read_bytes())["w"]
        best = max(best, worker.accuracy(weights))
        if worker.accuracy(weights) >= TARGET:
            reached = min(reached, model.created_at - started)
    print(
        f"{name:14} {reached:6.1f} s to {TARGET:.0%}; {summary.seconds:.0f} s in all, {summary.outcomes}, "
        f"best {best:.1%}, {admin.task(task).state}",
        flush=True,
    )
    return reached


async def _run(url: str, token: str, task: str, worker: Softmax, slow: np.ndarray) -> Any:
    from coterie_cli.load_generator import LoadGenerator

    class Slow(LoadGenerator):
        """Load generator whose devices need different times."""

        async def _deliver(self, line: Any, member: Any, item: Any, worker: Any) -> str:
            await self._model(line, member, item.model_digests[0])
            await asyncio.sleep(slow[int(member.name.rpartition("-")[2])])
            return await super()._deliver(line, member, item, worker)

    async with Slow(url).open(len(slow)) as fleet:
        members = await fleet.register(token, [f"slow-{i}" for i in range(len(slow))], samples=100)
        await fleet.enrol(task, members)
        return await fleet.run(task, members, worker)


# --- what devices are worth -----------------------------------------------------------------------------------------


def worth() -> None:
    """Sizes and wrong labels: ranks by sampling beside exact ones; then 100 devices."""
    from scipy.stats import spearmanr

    from services.aggregation.domain.contribution import exact, sampled

    images, labels = digits()
    test, held = images[:359], labels[:359]

    def trained(sizes: list[int], wrong: list[float], seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng, at, changes = np.random.default_rng(seed), 359, []
        for size, share in zip(sizes, wrong, strict=True):
            own = rng.choice(np.arange(at, len(labels)), size, replace=False)
            targets = labels[own].copy()
            turned = rng.random(size) < share
            targets[turned] = 9 - targets[turned]
            weights = np.zeros((64, 10))
            for _ in range(60):
                weights -= 0.5 * images[own].T @ (_softmax(images[own] @ weights) - np.eye(10)[targets]) / size
            changes.append(weights)
        return np.array(changes), np.array(sizes, np.float64)

    def game(changes: np.ndarray, sizes: np.ndarray) -> Any:
        def value(coalition: frozenset[int]) -> float:
            chosen = sorted(coalition)
            if not chosen:
                return 0.1
            weights = np.tensordot(sizes[chosen], changes[chosen], 1) / sizes[chosen].sum()
            return float(((test @ weights).argmax(axis=1) == held).mean())

        return value

    for seed in range(5):
        ten = game(*trained([10, 20, 40, 60, 80, 120, 40, 60, 80, 120], [0, 0, 0, 0, 0, 0, 0.5, 0.6, 0.8, 1.0], seed))
        whole = exact(10, ten)
        estimated = sampled(10, ten, np.random.default_rng(seed), max_evaluations=500)
        rank = spearmanr(estimated.values, whole).statistic
        print(f"seed {seed}: rank correlation {rank:.3f} with {estimated.evaluations} of 1,024 coalitions (goal 0.95)")
    worth_of_many(100)


def worth_of_many(devices: int) -> None:
    """Run one round whose updates an evaluator values over REST."""
    from coterie.client import Platform
    from coterie.learning.evaluation import evaluate
    from coterie.protocol.transport import Backoff
    from coterie_cli.processes import PlatformProcesses

    worker = Softmax(devices)
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        processes = PlatformProcesses.on_free_ports(Path(folder), {"COTERIE_LOG_LEVEL": "WARNING"})
        processes.start(wait_seconds=120.0)
        try:
            with Platform(processes.url, processes.admin_key(), backoff=Backoff(patience_seconds=120.0)) as admin:
                fields = {"quorum": 1.0, "rounds": 1, "keep_rounds": 1}
                race(processes, admin, worker, np.full(devices, 0.01), "valued", fields)
                task, seen = admin.find_task("valued").id, []
                began = time.perf_counter()
                evaluate(admin, task, lambda tensors: worker.accuracy(tensors["w"]), on_round=lambda *t: seen.append(t))
                took, values = (
                    time.perf_counter() - began,
                    [contribution.value for contribution in admin.contributions(task)],
                )
        finally:
            processes.stop()
    print(f"{devices} devices over REST: {took:.1f} s for {seen[0][2]} models (goal 60 s), sum {sum(values):.3f}")


if __name__ == "__main__":
    part, numbers = (sys.argv[1:2] or [""])[0], [int(item) for item in sys.argv[2:]]
    if part not in ("", "cost", "memory", "pace", "worth"):
        raise SystemExit(__doc__)
    if part in ("", "cost"):
        cost(numbers or [100, 1000])
    if part in ("", "memory"):
        memory(*([*numbers, 1000, 1_000_000][:2] if len(numbers) != 1 else (numbers[0], 1_000_000)))
    if part in ("", "pace"):
        pace((numbers or [100])[0])
    if part in ("", "worth"):
        worth()
