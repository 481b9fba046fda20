"""A torch learner made one's own: loss, metrics, optimiser, schedule, loop, and batches of any nesting."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from coterie.errors import BadLearner, WrongModel
from coterie.learning.batches import chosen, count, size_of, split
from coterie.learning.learner import Guarded
from coterie.learning.metrics import Metric, headed
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training import model_bytes, seeded, single_threaded
from coterie.learning.training_config import Instructions

single_threaded()
DATA = (torch.zeros(4, 1), torch.zeros(4, 1))


class Texts(torch.nn.Module):
    """A bag of words with lengths: two named inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(7, 4)
        self.out = torch.nn.Linear(4, 2)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        counted: torch.Tensor = self.words(words).sum(dim=1) / lengths[:, None]
        result: torch.Tensor = self.out(counted)
        return result


def texts(count: int = 9) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    words = torch.randint(0, 7, (count, 5), generator=draw)
    return {"words": words, "lengths": torch.full((count,), 5.0), "labels": words[:, 0] % 2}


class Growing(Dataset[Any]):
    """Dicts of a sample each; grows when instructions."""

    def __init__(self, size: int) -> None:
        self.size, self.all = size, texts(100)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if index >= self.size:
            raise IndexError(index)
        return {name: value[index] for name, value in self.all.items()}


def module() -> Texts:
    with seeded(1):
        return Texts()


def test_stacked_datasets_lists_and_loaders_of_dicts_train_alike() -> None:
    """A loader has its own batches and order, so it is compared by its figures."""
    stacked, dataset = texts(9), Growing(9)
    dataset.all = stacked
    listed = [dataset[index] for index in range(9)]
    measured = []
    for data in (stacked, dataset, listed, DataLoader(dataset, batch_size=4)):
        learner = TorchLearner(module(), data)
        assert learner.samples == 9
        measured.append(learner.evaluate())
        learner.train(Instructions(epochs=2, batch_size=4, learning_rate=0.5), 3)
        assert learner.evaluate()["loss"] < measured[-1]["loss"]
    for result in measured[1:]:
        assert result == pytest.approx(measured[0])


def test_the_samples_of_a_batch_are_counted_wherever_they_are() -> None:
    class Pair(NamedTuple):
        left: torch.Tensor
        right: torch.Tensor

    three = torch.zeros(3, 2)
    for batch in (three, (three, three), {"a": [three]}, [(three, {"b": three})], Pair(three, three), (1, "x", three)):
        assert size_of(batch) == 3
    assert count((Pair(three, three), three)) == 3
    picked = chosen((Pair(three, three), three), np.array([2, 0]))
    assert isinstance(picked[0], Pair)
    assert size_of(picked) == 2
    with pytest.raises(BadLearner, match="no tensor"):
        size_of({"words": ["a", "b"]})


def test_inputs_and_targets_are_found_or_error_names_their_keys() -> None:
    assert split((1, 2)) == (1, 2)
    assert split([1, 2, 3]) == ((1, 2), 3)
    assert split({"x": 1, "target": 2}) == ({"x": 1}, 2)
    with pytest.raises(BadLearner, match="none of targets"):
        split({"x": 1})
    with pytest.raises(BadLearner, match="not an \\(input, target\\) pair"):
        split(7)
    with pytest.raises(BadLearner, match="has no length"):
        count(iter([1]))  # type: ignore[arg-type]  # what an author may try


def test_a_metric_is_of_all_samples_together_and_not_a_mean_of_batches() -> None:
    """R² over 1,000 samples in two evaluation batches, against its definition on all of them."""
    inputs = torch.linspace(-1, 1, 1000)[:, None]
    targets = 3 * inputs + torch.sin(9 * inputs)

    def r2(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 1 - ((outputs - targets) ** 2).sum() / ((targets - targets.mean()) ** 2).sum()

    line = torch.nn.Linear(1, 1)
    with torch.no_grad():
        line.weight.fill_(3.0), line.bias.fill_(0.0)
    learner = TorchLearner(
        line, (inputs, targets), loss=torch.nn.functional.mse_loss,
        metrics={"r2": r2, "worst": Metric(lambda o, t: (o - t).abs().max(), "down")},
    )  # fmt: skip
    figures = learner.evaluate()
    assert figures["r2"] == pytest.approx(float(r2(3 * inputs, targets)), abs=1e-6)
    assert figures["worst"] == pytest.approx(1.0, abs=1e-3)
    assert learner.better == {"loss": "down", "r2": "up", "worst": "down"}
    assert TorchLearner(line, (inputs, targets)).better == {"loss": "down", "accuracy": "up"}


def test_a_bare_function_gets_better_the_way_its_name_says() -> None:
    learner = TorchLearner(torch.nn.Linear(1, 1), DATA, metrics={"mean_error": _worst, "hits": _worst})
    assert learner.better == {"loss": "down", "mean_error": "down", "hits": "up"}
    assert Guarded(learner).better == {"hits": "up"}  # what names say needs no telling
    assert [headed(name, {"hits": "up"}) for name in ("hits", "loss", "heard")] == ["hits ↑", "loss ↓", "heard"]


def _worst(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets).abs().max()


def test_iterator_yields_initial_state_and_then_news_of_each_round() -> None:
    """3 samples, then 2 more, then an end: 5 stay."""
    arrivals = iter([[(torch.ones(1), 0)] * 3, [(torch.zeros(1), 1)] * 2])
    learner = TorchLearner(torch.nn.Linear(1, 2), arrivals)
    assert learner.samples == 3
    learner.train(Instructions(), 0)
    counted = []
    for _ in range(3):
        Guarded(learner).arrive()
        counted.append(learner.samples)
    assert counted == [5, 5, 5]
    assert learner.evaluate()["samples"] == 5
    assert learner.gradient_sum(np.array([0, 4]), math.inf)["weight"].shape == (2, 1)


def test_tensors_of_different_lengths_are_named() -> None:
    learner = TorchLearner(torch.nn.Linear(1, 1), (torch.zeros(5, 1), torch.zeros(4, 1)))
    with pytest.raises(BadLearner, match="from 4 to 5 rows"):
        _ = learner.samples


def test_batches_with_time_in_front_are_counted_by_their_targets() -> None:
    """A loader that gives (time, batch) inputs: 6 samples in batches of 4 and 2, not 3 and 3 steps of time."""
    source = [(torch.full((3, 1), float(place)), place % 2) for place in range(6)]

    def collate(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.stack([item for item, _ in samples], dim=1), torch.tensor([label for _, label in samples])

    class Last(torch.nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs[-1])

    learner = TorchLearner(Last(1, 2), DataLoader(source, batch_size=4, collate_fn=collate))  # type: ignore[arg-type]
    assert learner.evaluate()["samples"] == 6


def test_schedule_of_a_loader_gets_its_own_steps() -> None:
    """7 samples in the loader's batches of 2 are 4 steps a pass, whatever the task's batch size is."""
    lengths: list[int] = []

    def schedule(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        lengths.append(steps)
        return torch.optim.lr_scheduler.ConstantLR(optimizer)

    source = TensorDataset(torch.zeros(7, 1), torch.zeros(7).long())
    learner = TorchLearner(torch.nn.Linear(1, 2), DataLoader(source, batch_size=2), schedule=schedule)
    learner.train(Instructions(epochs=3, batch_size=32), 0)
    assert lengths == [12]


def test_an_own_optimiser_with_a_schedule_is_stepped_once_a_batch() -> None:
    rates: list[float] = []

    class Noted(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    learner = TorchLearner(
        module(), texts(10),
        optimizer=lambda parameters, given: Noted(parameters, lr=given.learning_rate * given.custom["times"]),
        schedule=lambda optimizer, steps: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: 1 - at / steps),
    )  # fmt: skip
    learner.train(Instructions(epochs=2, batch_size=4, learning_rate=0.1, custom={"times": 2.0}), 1)
    assert rates == pytest.approx([0.2 * (1 - at / 6) for at in range(6)])


def test_torch_s_own_descent_takes_the_same_steps_as_the_built_in_one() -> None:
    instructions = Instructions(
        epochs=3, batch_size=4, learning_rate=0.1, momentum=0.9, weight_decay=0.01, proximal=0.3
    )
    plain, own = TorchLearner(module(), texts()), TorchLearner(
        module(), texts(),
        optimizer=lambda parameters, instructions: torch.optim.SGD(parameters, 0.1, 0.9, weight_decay=0.01),
    )  # fmt: skip
    for learner in (plain, own):
        learner.train(instructions, 5)
    for name, value in plain.parameters().items():
        assert np.allclose(value, own.parameters()[name], atol=1e-6)


def test_an_own_loop_gets_module_data_and_instructions_and_is_seeded() -> None:
    def loop(module: torch.nn.Module, data: Any, instructions: Instructions) -> None:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(torch.randn(parameter.shape) * instructions.custom["far"])

    def trained(seed: int) -> bytes:
        learner = TorchLearner(module(), texts(), step=loop)
        learner.train(Instructions(custom={"far": 0.1}), seed)
        return model_bytes(learner.module)

    assert trained(1) == trained(1) != trained(2)


def test_what_travels_is_chosen_and_the_rest_stays_at_home() -> None:
    model = module()
    learner = TorchLearner(model, texts(), exchange="words.*")
    assert set(learner.parameters()) == {"words.weight"}
    before = model.out.weight.detach().clone()
    learner.load({"words.weight": np.ones((7, 4), np.float32)})
    assert torch.equal(model.out.weight, before)
    learner.train(Instructions(learning_rate=0.5), 1)
    assert not torch.equal(model.out.weight, before)  # personal, and trained all the same
    with pytest.raises(BadLearner, match=r"out\.weight stays at home"):
        learner.trained()
    model.words.weight.requires_grad_(False)
    trainable = TorchLearner(model, texts(), exchange="trainable")
    assert set(trainable.parameters()) == {"out.weight", "out.bias"}
    assert trainable.trained() == ("out.weight", "out.bias")
    with pytest.raises(WrongModel, match="fits no tensor of this module, which has"):
        TorchLearner(module(), texts(), exchange="encoder.*")
    with pytest.raises(WrongModel, match="exchange="):
        trainable.load({"words.weight": np.zeros((7, 4), np.float32)})


def test_a_growing_dataset_is_followed_by_samples_and_gradients() -> None:
    data = Growing(4)
    learner = TorchLearner(module(), data)
    first = learner.loss_of(np.arange(4))
    data.size = 20
    assert learner.samples == 20
    assert learner.loss_of(np.arange(4)) == pytest.approx(first)
    whole = learner.gradient_sum(np.arange(20), float("inf"))
    assert set(whole) == {"words.weight", "out.weight", "out.bias"}
    learner.train(Instructions(batch_size=8), 1)
    with pytest.raises(BadLearner, match="one tensor of inputs"):
        learner.gradient_sum(np.arange(4), 1.0)


def test_an_explicit_device_is_kept_and_half_precision_travels_as_float32() -> None:
    learner = TorchLearner(torch.nn.Linear(2, 2).bfloat16(), (torch.zeros(3, 2), torch.zeros(3).long()), device="cpu")
    assert learner.device.type == "cpu"
    assert {value.dtype for value in learner.parameters().values()} == {np.dtype(np.float32)}
    learner.load({"weight": np.eye(2, dtype=np.float32), "bias": np.zeros(2, np.float32)})
    assert np.array_equal(learner.parameters()["weight"], np.eye(2))
