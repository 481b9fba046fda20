"""Flower's Ray simulation on the work of `bench/anchors/work.py`: prints times as JSON.

Run by `bench/lab.py` in a separate environment: `python anchor.py KIND DEVICES ROUNDS`. Processor time is that of
this process and of all that Ray started for it; every round trains every device.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import ClassVar

import flwr
import torch
import work
from flwr.client import ClientApp, NumPyClient
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation

KIND, DEVICES, ROUNDS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
_loaded: dict[str, object] = {}


def given():
    """Images are loaded once in a worker, as a careful user would."""
    if not _loaded:
        torch.set_num_threads(1)
        _loaded["data"], _loaded["model"] = work.images(KIND, DEVICES), work.model(KIND)
    return _loaded["data"], _loaded["model"]


class Client(NumPyClient):
    """One device: a plain torch loop."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fit(self, parameters, config):
        (shown, classes, shares), module = given()
        with torch.no_grad():
            for weight, value in zip(module.parameters(), parameters, strict=True):
                weight.copy_(torch.from_numpy(value))
        optimiser, own = torch.optim.SGD(module.parameters(), lr=work.RATE), shares[self.number]
        for places in own.split(work.BATCH):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(shown[places]), classes[places]).backward()
            optimiser.step()
        return [parameter.detach().numpy() for parameter in module.parameters()], work.EXAMPLES, {}


class Watched(FedAvg):
    """Averaging that notes the time and the cluster's processor time after each round."""

    ends: ClassVar[list[tuple[float, float]]] = []

    def aggregate_fit(self, server_round, results, failures):
        if failures:
            raise SystemExit(f"{len(failures)} devices failed: {failures[0]}")
        aggregated = super().aggregate_fit(server_round, results, failures)
        self.ends.append((time.time(), processor_time()))
        return aggregated


def processor_time() -> float:
    """Seconds of this process and of every process that Ray started for it."""
    ticks = os.sysconf("SC_CLK_TCK")
    total, family = 0.0, {os.getpid()}
    rows = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            rows[int(place.name)] = (int(fields[1]), int(fields[2]), (int(fields[11]) + int(fields[12])) / ticks)
    while more := {pid for pid, (parent, _, _) in rows.items() if parent in family} - family:
        family |= more
    for pid in family:
        total += rows.get(pid, (0, 0, 0.0))[2]
    return total


def server(context):
    first = ndarrays_to_parameters([parameter.detach().numpy() for parameter in work.model(KIND).parameters()])
    strategy = Watched(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=DEVICES,
        min_available_clients=DEVICES,
        initial_parameters=first,
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=ROUNDS))


def main() -> None:
    run_simulation(
        ServerApp(server_fn=server),
        ClientApp(client_fn=lambda context: Client(int(context.node_config["partition-id"])).to_client()),
        DEVICES,
        backend_config={"init_args": {"num_cpus": 2, "log_to_driver": False}, "client_resources": {"num_cpus": 1}},
    )
    walls = [after[0] - before[0] for before, after in zip(Watched.ends, Watched.ends[1:], strict=False)]
    spent = [after[1] - before[1] for before, after in zip(Watched.ends, Watched.ends[1:], strict=False)]
    print(
        json.dumps(
            {
                "flwr": flwr.__version__,
                "first_round_ends_after_seconds": Watched.ends[0][0] - float(os.environ["BEGAN"]),
                "seconds_a_round": min(walls),
                "processor_seconds_a_round": min(spent),
            }
        )
    )


if __name__ == "__main__":
    main()
