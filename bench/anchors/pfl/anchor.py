"""pfl's simulator on the work of `bench/anchors/work.py`: prints devices a processor second as JSON.

Run by `bench/lab.py` in a separate environment, with `bench/anchors` on its path: `python anchor.py KIND DEVICES
ROUNDS`.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import work
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn.functional import cross_entropy


class Net(nn.Module):
    """The model with the two methods that pfl asks for."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def loss(self, inputs, targets):
        return cross_entropy(self.layers(inputs), targets)

    def metrics(self, inputs, targets):
        return {}


class Rounds(TrainingProcessCallback):
    """Processor time at the end of each round."""

    def __init__(self) -> None:
        self.ends = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.ends.append(time.process_time())
        return False, Metrics()


def main(kind: str, devices: int, rounds: int) -> None:
    torch.set_num_threads(1)
    shown, classes, shares = work.images(kind, devices)
    turn = iter([who for _ in range(rounds + 1) for who in range(devices)])
    data = FederatedDataset(
        lambda who: Dataset(raw_data=[shown[shares[who]], classes[shares[who]]], user_id=str(who)),
        lambda: next(turn),
    )
    net, clock = Net(work.model(kind)), Rounds()
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(rounds, 10**9, devices, None),
        SimulatedBackend(data, None),
        model,
        NNTrainHyperParams(local_batch_size=work.BATCH, local_num_epochs=1, local_learning_rate=work.RATE),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    spent = [after - before for before, after in zip(clock.ends, clock.ends[1:], strict=False)]
    print(json.dumps({"devices_a_processor_second": devices / min(spent), "rounds": len(spent)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
