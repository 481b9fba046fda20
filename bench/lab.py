"""The lab's kernels against their anchors, in one run: `python bench/lab.py [--without-anchors]`.

Devices a processor second, on one thread, with 50 examples each, batches of 10, one epoch. "torch loop" is the plain
way: one module, SGD from torch.optim, one device after another. pfl (Apple's simulator) and Flower's Ray simulation run
from separate environments, which are made in .coterie/anchors the first time (bench/anchors/NAME/requirements.txt)
and are no dependency of anything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "anchors"))

import torch  # noqa: E402  # the anchors' folder must be on the path for `work`
import work  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

from coterie_lab.cohorts import (  # noqa: E402
    Cohort,
    Kernel,
    Lesson,
    kernel_for,
    mean_change,
    parameters_of,
)

LESSON = Lesson(work.RATE, work.BATCH)
ENVIRONMENTS = Path(".coterie/anchors")
ANCHOR_SECONDS = 600


def cohort(kind: str, devices: int) -> Cohort:
    """The anchors' images, as the kernels take them."""
    shown, classes, shares = work.images(kind, devices)
    return Cohort(shown, classes, shares, torch.full((devices,), work.EXAMPLES))


# --- the contenders ---------------------------------------------------------------------------------------------------


def torch_loop(module: nn.Module, many: Cohort) -> None:
    """What one writes first: a copy of the model for every device in turn, torch's own optimiser."""
    start = {name: value.clone() for name, value in module.state_dict().items()}
    for places in many.shares:
        module.load_state_dict(start)
        optimiser = torch.optim.SGD(module.parameters(), lr=work.RATE)
        for batch in places.split(work.BATCH):
            optimiser.zero_grad()
            cross_entropy(module(many.inputs[batch]), many.targets[batch]).backward()
            optimiser.step()
    module.load_state_dict(start)


def by_kernel(module: nn.Module, many: Cohort, kernel: Kernel) -> None:
    """A whole round by one of the lab's kernels: training and the mean."""
    mean_change(module, parameters_of(module), many, LESSON, 0, kernel)


def speed(task: Callable[[], None], devices: int) -> float:
    """Devices a processor second, the best of three after one to warm up."""
    spent = []
    for _ in range(4):
        began = time.process_time()
        task()
        spent.append(time.process_time() - began)
    return devices / min(spent[1:])


def anchor(name: str, kind: str, devices: int, rounds: int) -> dict[str, Any] | None:
    """What an anchor measured of itself; None, with the reason printed, where its environment cannot be made."""
    place = ENVIRONMENTS / name
    wanted = HERE / "anchors" / name / "requirements.txt"
    if not (place / ".made").exists():
        print(f"making the environment of {name}, once: {', '.join(wanted.read_text().split())}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        made = subprocess.run(
            [str(place / "bin/python"), "-m", "pip", "install", "--quiet", "-r", str(wanted)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            print(f"  {name} cannot be installed here: {(made.stderr.strip().splitlines() or ['?'])[-1]}")
            return None
        (place / ".made").touch()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        # Files and a separate session: processes that Ray leaves behind would keep a pipe open.
        anchored = subprocess.Popen(
            [str(place / "bin/python"), str(HERE / "anchors" / name / "anchor.py"), kind, str(devices), str(rounds)],
            env=os.environ | {
                "PYTHONPATH": str((HERE / "anchors").resolve()), "BEGAN": repr(time.time()), "OMP_NUM_THREADS": "1",
                "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0",
            },
            stdout=output, stderr=errors, start_new_session=True,
        )  # fmt: skip
        try:
            anchored.wait(ANCHOR_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"  {name} did not end within {ANCHOR_SECONDS} s: not compared")
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(anchored.pid, signal.SIGKILL)
            anchored.wait()
        lines, messages = (_lines(stream) for stream in (output, errors))
    if anchored.returncode:
        print(f"  {name} failed: {messages[-1]}")
        return None
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def _lines(stream: IO[str]) -> list[str]:
    stream.seek(0)
    return stream.read().strip().splitlines() or ["?"]


def met(ratio: float, goal: float) -> str:
    return f"{ratio:.2f} × (goal {goal:g}: {'met' if ratio >= goal else 'MISSED'})"


# --- what is measured -------------------------------------------------------------------------------------------------


def against_pfl(kind: str, devices: int, goal: float, loop_goal: float | None, anchors: bool) -> None:
    """One cohort: our kernel, the plain loop and pfl, each with its ratio."""
    module, many = work.model(kind), cohort(kind, devices)
    kernel = kernel_for(module)
    ours = speed(lambda: by_kernel(module, many, kernel), devices)
    plain = speed(lambda: torch_loop(module, many), devices)
    size = len(parameters_of(module))
    print(f"{kind}, {devices} devices, {size:,} parameters: {kernel} kernel {ours:,.1f} devices a processor second")
    print(f"  torch loop {plain:,.1f}: " + (met(ours / plain, loop_goal) if loop_goal else f"{ours / plain:.2f} ×"))
    if kernel == "stacked":
        other = speed(lambda: by_kernel(module, many, "looped"), devices)
        print(f"  looped kernel {other:,.1f}: {ours / other:.2f} ×, so stacked is the rule")
    measured = anchor("pfl", kind, devices, 4) if anchors else None
    if measured:
        theirs = measured["devices_a_processor_second"]
        print(f"  pfl 0.6.0 {theirs:,.1f}: {met(ours / theirs, goal)}", flush=True)


def against_flower(kind: str, goal: float) -> None:
    """A round of 100 devices, processor seconds and seconds, beside Flower's on two cores."""
    devices, module = 100, work.model(kind)
    many, kernel = cohort(kind, devices), kernel_for(module)
    ours = devices / speed(lambda: by_kernel(module, many, kernel), devices)
    print(f"{kind}, {devices} devices: a round in {ours:.3f} processor seconds ({kernel})")
    measured = anchor("flower", kind, devices, 4)
    if measured:
        theirs = measured["processor_seconds_a_round"]
        print(f"  Flower {measured['flwr']} {theirs:.2f} processor seconds a round: {met(theirs / ours, goal)}")
        print(
            f"  seconds a round: ours {ours:.3f} on one core, Flower {measured['seconds_a_round']:.2f} on two; "
            f"its first round ended {measured['first_round_ends_after_seconds']:.1f} s after the start",
            flush=True,
        )


FIRST_ROUND = """
import sys; sys.path.insert(0, {anchors!r})
import torch, work
torch.set_num_threads(1)
from coterie_lab.cohorts import Cohort, Lesson, kernel_for, mean_change, parameters_of
module = work.model("mlp")
shown, classes, shares = work.images("mlp", 100)
many = Cohort(shown, classes, shares, torch.full((100,), work.EXAMPLES))
mean_change(module, parameters_of(module), many, Lesson(work.RATE, work.BATCH), 0, kernel_for(module))
"""


def from_the_start() -> None:
    """Processor and wall seconds from starting Python to the end of the first round of 100 devices."""
    program = FIRST_ROUND.format(anchors=str((HERE / "anchors").resolve()))
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"from the start to the end of the first round: {wall:.1f} s, {spent:.1f} processor seconds (goal 3 s)")


def main() -> None:
    """Prints every figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--without-anchors", action="store_true", help="our kernels and the torch loop only")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for devices, goal in ((50, 8.0), (250, 10.0), (1_000, 10.0)):
        against_pfl("mlp", devices, goal, None, not given.without_anchors)
    against_pfl("cnn", 8, 1.5, 0.95, not given.without_anchors)
    if not given.without_anchors:
        against_flower("mlp", 8.0)
        against_flower("small cnn", 1.5)
    from_the_start()


if __name__ == "__main__":
    main()
