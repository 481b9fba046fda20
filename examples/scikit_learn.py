"""A scikit-learn model: five names make a learner, and no torch is needed."""

from __future__ import annotations

import numpy as np
from play import play
from safetensors.numpy import save
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.preprocessing import scale

from coterie.agent.report import Tensors
from coterie.learning.training_config import Instructions

DEVICES = 3
START = {"coefficients": np.zeros((1, 30)), "intercept": np.zeros(1)}


class Tumours:
    """A linear classifier that goes on from the round's coefficients."""

    def __init__(self, number: int) -> None:
        inputs, targets = load_breast_cancer(return_X_y=True)
        inputs, turn = scale(inputs), np.arange(len(targets)) % (DEVICES + 1)
        self.inputs, self.targets = inputs[turn == number], targets[turn == number]
        self.test = inputs[turn == DEVICES], targets[turn == DEVICES]
        self.load(START)

    @property
    def samples(self) -> int:
        return len(self.targets)

    def parameters(self) -> Tensors:
        return {"coefficients": self.model.coef_.copy(), "intercept": self.model.intercept_.copy()}

    def load(self, tensors: Tensors) -> None:
        self.model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.01)
        self.model.classes_ = np.array([0, 1])
        self.model.coef_, self.model.intercept_ = tensors["coefficients"].copy(), tensors["intercept"].copy()

    def train(self, instructions: Instructions, seed: int) -> None:
        self.model.set_params(eta0=instructions.learning_rate, random_state=seed % 2**32)
        for _ in range(instructions.epochs):
            self.model.partial_fit(self.inputs, self.targets, classes=[0, 1])

    def evaluate(self) -> dict[str, float]:
        inputs, targets = self.test
        shares = self.model.predict_proba(inputs)
        return {"accuracy": float(self.model.score(inputs, targets)), "loss": float(log_loss(targets, shares))}


if __name__ == "__main__":
    learners = [Tumours(item) for item in range(DEVICES)]
    play("tumours", save(START), learners, rounds=3, training={"epochs": 2, "learning_rate": 0.01})
