"""Devices that are not Python: they pass the conformance kit and learn in one task with the Python agent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save
from sklearn.datasets import load_digits

from coterie.agent.agent import Agent
from coterie.agent.cache import BlobCache
from coterie_cli.processes import die_with_parent
from tests.e2e.real_platform import ROOT, RealPlatform

CURL = ROOT / "examples" / "curl"
TYPESCRIPT = ROOT / "examples" / "typescript"
NEEDED = ("bash", "curl", "openssl", "jq", "awk")
MISSING = [name for name in NEEDED if shutil.which(name) is None]


def node_is_missing() -> bool:
    """Whether there is not a node that has what the device needs."""
    if shutil.which("node") is None:
        return True
    printed = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return int(printed.strip().removeprefix("v").split(".")[0]) < 18


with_shell = pytest.mark.skipif(bool(MISSING), reason=f"not here: {', '.join(MISSING)} (apt install curl openssl jq)")
with_node = pytest.mark.skipif(node_is_missing(), reason="no node from 18 on is here (apt install nodejs)")
DEVICES = {"curl": [str(CURL / "device.sh")], "typescript": ["node", str(TYPESCRIPT / "built" / "device.js")]}
BOTH = [pytest.param("curl", marks=with_shell), pytest.param("typescript", marks=with_node)]


def digits(
    part: slice,
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float32]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    images, labels = load_digits(return_X_y=True)
    return (images[part] / 16).astype(np.float32), labels[part].astype(np.int64)


def written(path: Path, part: slice) -> Path:
    """Samples as these devices read them."""
    inputs, labels = digits(part)
    rows = (",".join([str(label), *(f"{value:g}" for value in row)]) for row, label in zip(inputs, labels, strict=True))
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("name", BOTH)
def test_it_passes_the_conformance_kit(name: str, tmp_path: Path) -> None:
    samples = written(tmp_path / "samples.csv", slice(0, 60))
    done = subprocess.run(
        [sys.executable, "-m", "coterie_cli.main", "conformance", "--json", "--", *DEVICES[name], str(samples)],
        cwd=ROOT, capture_output=True, text=True, timeout=540, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    cases = json.loads(done.stdout)["cases"]
    assert done.returncode == 0, [case for case in cases if case["outcome"] == "failed"]
    assert {case["outcome"] for case in cases if case["group"] == "open"} == {"passed"}
    assert {case["outcome"] for case in cases} == {"passed", "declined"}


@with_shell
@with_node
def test_devices_of_three_languages_learn_in_one_task(shared_platform: RealPlatform, tmp_path: Path) -> None:
    admin, url = shared_platform.admin, shared_platform.processes.url
    start = save({"bias": np.zeros(10, np.float32), "weight": np.zeros((10, 64), np.float32)})
    task = admin.create_task(
        name="three-languages", preset="fedavg", rounds=3, min_devices=3, round_seconds=240.0, auto_start=True,
        model_digests=[admin.upload_model(start)], training={"epochs": 3, "batch_size": 16, "learning_rate": 0.5},
    )  # fmt: skip
    token = admin.issue_token(admin.create_owner("polyglot").id, uses=3).token
    inputs, labels = digits(slice(0, 1200, 3))
    agent = Agent.register(
        url, token, name="python", home=tmp_path / "python", model=torch.nn.Linear(64, 10),
        data=(torch.from_numpy(inputs), torch.from_numpy(labels)), cache=BlobCache(tmp_path / "cache"),
    )  # fmt: skip
    agent.join("three-languages")
    running = threading.Thread(target=agent.run)
    running.start()
    others = {}
    try:
        for number, (name, command) in enumerate(DEVICES.items(), 1):
            samples = written(tmp_path / f"{name}.csv", slice(number, 1200, 3))
            variables = {
                "COTERIE_URL": url,
                "COTERIE_TOKEN": token,
                "COTERIE_NAME": name,
                "COTERIE_TASK": "three-languages",
            }
            with (tmp_path / f"{name}.log").open("wb") as log:
                others[name] = subprocess.Popen(
                    [*command, str(samples)], env={**os.environ, **variables, "COTERIE_HOME": str(tmp_path / name)},
                    stdout=log, stderr=subprocess.STDOUT, preexec_fn=die_with_parent,
                )  # fmt: skip
        ended = admin.wait_for_end(task.id)
        logs = "\n".join((tmp_path / f"{name}.log").read_text() for name in others)
        assert ended.state == "finished", f"{ended.reason}\n{logs}\n{shared_platform.logs()}"
        assert {name: process.wait(timeout=120) for name, process in others.items()} == dict.fromkeys(others, 0), logs
        assert all(f"round {number}: accepted" in logs for number in (1, 2, 3)), logs
    finally:
        for process in others.values():
            process.kill()
            process.wait()
        agent.stop()
        running.join()
    detail = admin.round(task.id, 3)
    assert [part.state for part in detail.participations] == ["delivered"] * 3
    assert all(part.metrics["accuracy"] > 0.8 for part in detail.participations)
    final = load(admin.download_model(ended.model_digests[0]).read_bytes())
    held_out, expected = digits(slice(1200, None))
    guessed = (held_out @ final["weight"].T + final["bias"]).argmax(axis=1)
    assert float((guessed == expected).mean()) > 0.8


@with_shell
def test_the_shell_device_s_training_is_that_of_the_formula(tmp_path: Path) -> None:
    """Two full-batch steps, in which no order of samples matters, against numpy; to the precision of 32 bits."""
    random = np.random.default_rng(1)
    weight, bias = random.normal(size=(3, 4)).astype(np.float32), random.normal(size=3).astype(np.float32)
    inputs, labels = random.normal(size=(7, 4)).round(3), random.integers(3, size=7)
    (tmp_path / "numbers").write_text(
        "\n".join(f" {value!r}" for value in [*map(float, bias), *map(float, weight.ravel())])
    )
    rows = [",".join(map(str, [label, *row])) for label, row in zip(labels, inputs, strict=True)]
    (tmp_path / "samples").write_text("\n".join(rows) + "\n")
    printed = subprocess.run(
        ["awk", "-f", str(CURL / "train.awk"), "-v", "shape=3 4 3 0", "-v", "recipe=2 7 0.25 1", "-v",
         f"figures={tmp_path / 'figures'}", str(tmp_path / "numbers"), str(tmp_path / "samples")],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    change = np.frombuffer(bytes.fromhex(printed.replace("\\x", "")), "<f4")
    w, b = weight.astype(np.float64), bias.astype(np.float64)
    for step in range(2):
        scores = inputs @ w.T + b
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        if step == 0:
            figures = json.loads((tmp_path / "figures").read_text())
            assert figures["loss"] == pytest.approx(-np.log(chances[range(7), labels]).mean(), abs=1e-5)
            assert figures["accuracy"] == pytest.approx((scores.argmax(axis=1) == labels).mean(), abs=1e-5)
        chances[range(7), labels] -= 1.0
        w, b = w - 0.25 * chances.T @ inputs / 7, b - 0.25 * chances.mean(axis=0)
    expected = np.concatenate([b - bias, (w - weight).ravel()])
    assert change == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_what_node_runs_is_what_the_typescript_says(tmp_path: Path) -> None:
    compiler = TYPESCRIPT / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        sources = {path.stem for path in (TYPESCRIPT / "src").glob("*.ts")}
        assert {path.stem for path in (TYPESCRIPT / "built").glob("*.js")} == sources
        pytest.skip("no compiler is here (npm install in examples/typescript)")
    subprocess.run([compiler, "--outDir", tmp_path], cwd=TYPESCRIPT, timeout=300, check=True)
    for made in tmp_path.glob("*.js"):
        assert made.read_text() == (TYPESCRIPT / "built" / made.name).read_text(), f"{made.name}: npm run build"
