"""Four devices work on a task of a platform that runs elsewhere: `python -m tests.chaos.visit URL KEY_FILE`.

Prints the digest of the last model. Tasks are named alike and learn from the same seeds, so it is always the same one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from coterie.agent.cache import BlobCache
from coterie.client import Platform
from tests.chaos.deployment import GATEWAYS, PATIENT, Deployment
from tests.chaos.plays import PLAYS, RoundInputs


def main() -> None:
    """Registers devices, publishes, works until the end and tells how it was."""
    url, key = sys.argv[1], Path(sys.argv[2]).read_text().strip()
    with tempfile.TemporaryDirectory(prefix="coterie-visit-") as folder:
        cache = BlobCache(Path(folder) / "cache")
        with Platform(url, key, cache=cache, backoff=PATIENT) as admin:
            door = SimpleNamespace(url=url)
            place: Any = SimpleNamespace(admin=admin, cache=cache, links=dict.fromkeys(GATEWAYS, door), logs=lambda: "")
            with RoundInputs(cast(Deployment, place), PLAYS["fedavg"], Path(folder) / "devices") as company:
                task_id = company.publish()
                company.start(task_id)
                print(f"task {task_id}", file=sys.stderr, flush=True)
                task = company.end(task_id, seconds=600.0)
                assert task.state == "finished", task.reason
                rounds = [(item.number, item.state, item.delivered) for item in admin.rounds(task_id)]
                assert rounds == [(number, "done", 4) for number in range(1, company.play.rounds + 1)], rounds
            print(task.model_digests[0])


if __name__ == "__main__":
    main()
