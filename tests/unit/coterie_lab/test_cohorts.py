"""Both kernels train the same devices to the same models."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coterie_lab.cohorts import CHUNK, Cohort, Kernel, Lesson, changes, dense_layers, mean_change, parameters_of


def cohort(devices: int, *, ragged: bool = True, inputs: int = 12, seed: int = 0) -> Cohort:
    draw = torch.Generator().manual_seed(seed)
    samples, most = 200, 9
    counts = torch.randint(1, most + 1, (devices,), generator=draw) if ragged else torch.full((devices,), most)
    shares = torch.randint(0, samples, (devices, most), generator=draw)
    return Cohort(
        torch.rand(samples, inputs, generator=draw), torch.randint(0, 3, (samples,), generator=draw), shares, counts
    )


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def test_a_step_by_hand() -> None:
    """One device, one sample x = (1, 2) of class 0, zero weights: g = (1/2 − 1, 1/2), dW = g'x, rate 1."""
    module = nn.Linear(2, 2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    one = Cohort(torch.tensor([[1.0, 2.0]]), torch.tensor([0]), torch.tensor([[0]]), torch.tensor([1]))
    for kernel in ("stacked", "looped"):
        (change,) = changes(module, parameters_of(module), one, Lesson(1.0, 1), 0, kernel)
        assert change.tolist() == [[0.5, 1.0, -0.5, -1.0, 0.5, -0.5]]


def test_stacked_and_looped_agree_for_devices_of_unlike_size() -> None:
    """Sums in another order differ in the last bits and no more; chunks are crossed."""
    module, many, lesson = network(), cohort(CHUNK + 7), Lesson(0.5, 4, epochs=2)
    model = parameters_of(module)
    stacked, looped = (torch.cat(list(changes(module, model, many, lesson, 5, kernel))) for kernel in KERNELS)
    assert stacked.shape == (CHUNK + 7, len(model))
    assert torch.allclose(stacked, looped, atol=1e-6)
    assert stacked.abs().max() > 0.01


KERNELS: tuple[Kernel, Kernel] = ("stacked", "looped")


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(kernel: Kernel) -> None:
    module, few, lesson = network(), cohort(5), Lesson(0.5, 4)
    model = parameters_of(module)
    first, again, other = (mean_change(module, model, few, lesson, seed, kernel) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(model, parameters_of(module))


def test_the_mean_weighs_devices_by_their_samples() -> None:
    module, few, lesson = network(), cohort(6), Lesson(0.5, 4)
    model = parameters_of(module)
    item = torch.cat(list(changes(module, model, few, lesson, 3, "stacked")))
    by_hand = sum(float(n) * row for n, row in zip(few.counts, item, strict=True)) / float(few.counts.sum())
    assert torch.allclose(mean_change(module, model, few, lesson, 3, "stacked"), by_hand, atol=1e-7)


def test_training_lowers_the_loss_of_every_device() -> None:
    module, many = network(), cohort(8, ragged=False)
    model = parameters_of(module)
    (change,) = changes(module, model, many, Lesson(0.2, 9, epochs=60), 1, "stacked")
    for device in range(8):
        losses = []
        for parameters in (model, model + change[device]):
            torch.nn.utils.vector_to_parameters(parameters, module.parameters())
            places = many.shares[device]
            with torch.no_grad():
                losses.append(float(nn.functional.cross_entropy(module(many.inputs[places]), many.targets[places])))
        assert losses[1] < losses[0]


@pytest.mark.parametrize(("filters", "pool"), [(4, 2), (32, 2), (32, 3)])
def test_convolutions_are_trained_as_a_plain_loop_trains_them(filters: int, pool: int) -> None:
    """Half of every image is blank, so that pools meet ties; images are laid out otherwise from 32 filters on, and the
    second convolution is made one with a pool of 3×3."""
    torch.manual_seed(2)
    module = nn.Sequential(
        nn.Conv2d(2, filters, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(filters, 6, 3), nn.ReLU(),
        nn.MaxPool2d(pool), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip
    size = 2 * (pool + 2)
    images, classes = torch.rand(12, 2, size, size), torch.randint(0, 3, (12,))
    images[:, :, size // 2 :] = 0.0
    one = Cohort(images, classes, torch.arange(12)[None], torch.tensor([12]))
    model = parameters_of(module)
    (change,) = changes(module, model, one, Lesson(0.3, 12, epochs=4), 0, "looped")
    plain = [parameter.requires_grad_() for parameter in module.parameters()]
    optimiser = torch.optim.SGD(plain, lr=0.3)
    for _ in range(4):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(images), classes).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert torch.allclose(change[0], parameters_of(module) - model, atol=1e-6)
    assert change.abs().max() > 0.01


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
        nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)),
        nn.Linear(2, 2, bias=False),
        nn.Conv2d(1, 1, 3),
    ],
)
def test_a_module_the_stacked_kernel_cannot_train_is_refused(module: nn.Module) -> None:
    with pytest.raises(ValueError, match="stacked kernel"):
        dense_layers(module)
