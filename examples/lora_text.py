"""A text classifier of which only low-rank adapters travel: kilobytes a round, whatever the transformer weighs.

The frozen transformer is the same on every device (here from one seed; in earnest from a file you give them).
"""

from __future__ import annotations

import torch
from play import play

from coterie import TorchLearner
from coterie.learning.adapters import add_adapters
from coterie.learning.training import model_bytes, seeded

DEVICES, WORDS, LENGTH = 3, 400, 12


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, 64)
        layer = torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = torch.nn.Linear(64, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(self.encoder(self.words(words)).mean(dim=1))
        return result


def network() -> torch.nn.Module:
    with seeded(0):
        return add_adapters(Classifier(), rank=4)


def sentences(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Made-up sentences: the first 40 words are kind, the next 40 are not; what there is more of decides."""
    draw = torch.Generator().manual_seed(seed)
    words = torch.randint(80, WORDS, (count, LENGTH), generator=draw)
    labels = torch.randint(0, 2, (count,), generator=draw)
    for place in range(4):
        words[:, place] = torch.randint(0, 40, (count,), generator=draw) + 40 * labels
    return words, labels


def learner(number: int, devices: int = DEVICES) -> TorchLearner:
    return TorchLearner(network(), sentences(number, 200), test_data=sentences(99, 200), exchange="adapters")


if __name__ == "__main__":
    body = model_bytes(network(), exchange="adapters")
    whole = len(model_bytes(network()))
    print(f"{len(body) / 1000:.1f} kB travel of {whole / 1000:.0f} kB")
    training = {"epochs": 3, "batch_size": 20, "learning_rate": 0.2}
    play("lora-text", body, [learner(item) for item in range(DEVICES)], rounds=6, training=training)
