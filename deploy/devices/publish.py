"""Publish a small task for the three demonstration devices: owner, token, model and two rounds of work."""

from __future__ import annotations

import os
from pathlib import Path

from device import DEVICES, TASK, make_model
from safetensors.torch import save

from coterie.client import Platform

ROUNDS = 2


def main() -> None:
    key = Path(os.environ["COTERIE_API_KEY_FILE"]).read_text().strip()
    with Platform(os.environ["COTERIE_URL"], key) as platform:
        owner = platform.create_owner("demonstration")
        token = platform.issue_token(owner.id, uses=DEVICES).token
        Path("/data/token").write_text(token)
        digest = platform.upload_model(save(make_model().state_dict()))
        task = platform.create_task(
            name=TASK,
            preset="fedavg",
            model_digests=[digest],
            rounds=ROUNDS,
            min_devices=DEVICES,
            quorum=1.0,
            round_seconds=120.0,
            auto_start=True,
            training={"epochs": 2, "batch_size": 32, "learning_rate": 0.1},
        )
        print(f"task {task.id} waits for {DEVICES} devices")


if __name__ == "__main__":
    main()
