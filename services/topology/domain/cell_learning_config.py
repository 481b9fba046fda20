"""How cells learn, whatever computes it; read without torch. [DPVD]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from services.topology.domain.cell_checkpoints import InvalidTraining
from services.topology.domain.cell_learning_views import LEAST_SET, Prior

Head = Literal["set", "pointer"]
Mixing = Literal["vdn", "iql"]


@dataclass(frozen=True, slots=True)
class LearningConfig:
    """How cells learn. The defaults are the practical learner; `specified` gives the specification's plain one.

    head, prior: see the heads and views.  named: see the views; a policy for devices that come and go has it False and
    the pointer head.  structured: part of exploration that moves one device.  least: smallest set
    (set head only).  keep_best: the policy is the best evaluated one, not the last.  epoch: steps between evaluations
    on `evaluation_states` fixed states.
    """

    mixing: Mixing = "vdn"
    head: Head = "pointer"
    prior: Prior = "plan"
    named: bool = True
    steps: int = 1500
    transitions: int = 8
    batch: int = 128
    replay: int = 2000
    width: int = 48
    learning_rate: float = 2e-3
    first_exploration: float = 0.3
    final_exploration: float = 0.05
    keep_best: bool = True
    structured: float = 1.0
    discount: float = 0.0
    least: int = LEAST_SET
    reward_unit: float = 1e3
    epoch: int = 50
    evaluation_states: int = 64

    def __post_init__(self) -> None:
        for name in ("steps", "transitions", "batch", "replay", "width", "epoch", "evaluation_states"):
            if getattr(self, name) < 1:
                raise InvalidTraining(f"{name} is {getattr(self, name)}; give at least 1")
        for name in ("first_exploration", "final_exploration", "structured"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidTraining(f"{name} is {getattr(self, name)}; give a number in [0, 1]")
        if not 0 <= self.discount < 1:
            raise InvalidTraining(f"discount is {self.discount}; give a number in [0, 1)")
        if self.least < 0 or not self.learning_rate > 0 or not self.reward_unit > 0:
            raise InvalidTraining("least must be 0 or more, learning_rate and reward_unit above 0")

    @classmethod
    def specified(cls, mixing: Mixing = "vdn", **changes: Any) -> LearningConfig:
        """The plain learner of the specification: set head, no prior."""
        plain: dict[str, Any] = {
            "head": "set",
            "prior": "none",
            "replay": 8000,
            "keep_best": False,
            "first_exploration": 1.0,
            "final_exploration": 0.15,
            "structured": 0.8,
        }
        return cls(mixing=mixing, **(plain | changes))
