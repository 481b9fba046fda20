"""A round in which privacy is sold, as a strategy sees it, without a platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from coterie.agent.home import DeviceHome
from coterie.agent.mail import Mail
from coterie.learning.torch_learner import TorchLearner
from coterie.privacy.ledger import Limit
from coterie.privacy.simulation import SeededStream
from coterie.privacy.stream import Stream
from coterie.records import WorkItem
from coterie.strategies.context import RoundContext


def work_item(**changes: Any) -> WorkItem:
    """Work of round 1 of a market with a price of 1 credit."""
    values: dict[str, Any] = dict.fromkeys(WorkItem.__slots__, 0)
    values |= {"task_id": "tsk_1", "round": 1, "attempt": 1, "role": "solo", "rounds": 1, "privacy_unit": "example"}
    values |= {"model_digests": ("m",), "model_lines": (0,), "previous_digests": (), "peers": (), "noised": False}
    values |= {"topology": "star", "privacy": "priced", "incentive": "stackelberg", "training": {}, "parameters": {}}
    values |= {"price_microcredits": 1_000_000, "external_risk": 0.0, "max_update_bytes": 1 << 20}
    return WorkItem(**(values | changes))


@dataclass
class Device:
    """A device at home in a folder."""

    folder: Path
    private: Mapping[str, Any] = field(default_factory=dict)
    limit: Limit = field(default_factory=lambda: Limit(1000.0, 1e-5))

    def __post_init__(self) -> None:
        self.home = DeviceHome(self.folder)
        if self.private:
            self.home.save_private_settings(self.private)
        self.ledger = self.home.ledger(self.limit)

    def context(
        self,
        work: WorkItem,
        trainer: TorchLearner | None = None,
        model: Path | None = None,
        noise: Callable[[], Stream] = lambda: SeededStream(7),
    ) -> RoundContext:
        """What the strategy is given; letters are not part of these rounds."""
        return RoundContext(
            work,
            "dev_1",
            self.home.keys(),
            trainer,
            trainer.samples if trainer is not None else 1,
            cast(Mail, None),
            self.ledger,
            self.home.private_settings(),
            self.home.memory(work.task_id),
            self.home.outbox,
            lambda digest: cast(Path, model),
            7,
            noise,
            keep_private=self.home.keep_private,
        )
