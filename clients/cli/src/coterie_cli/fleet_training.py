"""Training for simulated devices: each has a part of the digits, all share one module per thread."""

from __future__ import annotations

import threading

from coterie.procedures.context import round_seed
from coterie.procedures.star import change_of
from coterie.records import WorkItem
from coterie.samples import digits, digits_model
from coterie.training import Recipe, Trainer, single_threaded
from coterie.work import Delivery
from coterie_cli.fleet import Arrays, Member


class DigitsWorker:
    """Trains a member's part of the digits from the round's model."""

    blocking = True

    def __init__(self, devices: int, seed: int = 0) -> None:
        single_threaded()
        self._split, self._seed = digits(devices, seed=seed), seed
        self._local = threading.local()

    def samples_of(self, member: Member) -> int:
        """How many samples a member has."""
        return len(self._split.shards[_number(member)][0])

    def deliver(self, member: Member, work: WorkItem, model: Arrays) -> Delivery:
        """The change of the model after the member's epochs; metrics are those of the model as it came."""
        if not hasattr(self._local, "module"):
            self._local.module = digits_model()
        trainer = Trainer(self._local.module, self._split.shards[_number(member)])
        trainer.load(model)
        metrics = trainer.evaluate()
        seed = round_seed(self._seed, work.task_id, work.round, member.name)
        trainer.train(Recipe.of(work.training, work.batch_size), seed)
        return Delivery(change_of(model, trainer.tensors()), float(member.samples), metrics=metrics)


def _number(member: Member) -> int:
    return int(member.name.rpartition("-")[2]) - 1
