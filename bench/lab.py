"""The lab's kernels against one torch loop: `python bench/lab.py`, devices a processor second.

A cohort of 50 to 1,000 devices with 50 examples of 28×28 each, batches of 10, one epoch; the small network has about
5,000 parameters. "torch loop" is the plain way: one module, SGD from torch.optim, one device after another. All run in
this process on one thread, one after another, best of three.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from coterie_lab.cohorts import Cohort, Kernel, Lesson, changes, parameters_of

EXAMPLES, BATCH, RATE = 50, 10, 0.1


def cohort(devices: int, shape: tuple[int, ...]) -> Cohort:
    """Random images: speed does not depend on what they show."""
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(5_000, *shape, generator=draw)
    shares = torch.randint(0, len(images), (devices, EXAMPLES), generator=draw)
    return Cohort(
        images, torch.randint(0, 10, (len(images),), generator=draw), shares, torch.full((devices,), EXAMPLES)
    )


def mlp() -> nn.Module:
    """About 5,000 parameters."""
    return nn.Sequential(nn.Linear(784, 6), nn.ReLU(), nn.Linear(6, 10))


def cnn() -> nn.Module:
    """A convolutional network for 32×32 colour images, about 1.6 million parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(64 * 64, 384), nn.ReLU(), nn.Linear(384, 10),
    )  # fmt: skip


def torch_loop(module: nn.Module, many: Cohort) -> None:
    """What one writes first: a copy of the model for every device in turn, torch's own optimiser."""
    start = {name: value.clone() for name, value in module.state_dict().items()}
    for places in many.shares:
        module.load_state_dict(start)
        optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
        for first in range(0, EXAMPLES, BATCH):
            batch = places[first : first + BATCH]
            optimiser.zero_grad()
            cross_entropy(module(many.inputs[batch]), many.targets[batch]).backward()
            optimiser.step()
    module.load_state_dict(start)


def by_kernel(module: nn.Module, model: Tensor, many: Cohort, kernel: Kernel) -> None:
    """All devices by one of the lab's kernels."""
    for _ in changes(module, model, many, Lesson(RATE, BATCH), 0, kernel):
        pass


def speed(work: Callable[[], None], devices: int) -> float:
    """Devices a processor second, the best of three after one to warm up."""
    spent = []
    for _ in range(4):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return devices / min(spent[1:])


def compare(name: str, module: nn.Module, many: Cohort, kernels: tuple[Kernel, ...]) -> None:
    """One row a kernel, with the ratio to the plain loop in the same run."""
    model = parameters_of(module)
    plain = speed(lambda: torch_loop(module, many), many.devices)
    print(f"{name}, {many.devices} devices, {len(model):,} parameters: torch loop {plain:,.1f} a second", flush=True)
    for kernel in kernels:
        ours = speed(lambda kernel=kernel: by_kernel(module, model, many, kernel), many.devices)  # type: ignore[misc]
        print(f"  {kernel} kernel {ours:,.1f} a second, {ours / plain:.2f} × the loop", flush=True)


def main() -> None:
    """Prints every figure."""
    torch.set_num_threads(1)
    for devices in (50, 250, 1_000):
        compare("MLP", mlp(), cohort(devices, (784,)), ("stacked", "looped"))
    compare("CNN", cnn(), cohort(8, (3, 32, 32)), ("looped",))


if __name__ == "__main__":
    main()
