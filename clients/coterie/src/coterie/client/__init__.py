"""The platform over REST, for admins, publishers and devices: one method per route, typed records as results.

    with Platform("http://127.0.0.1:8080", api_key) as platform:
        task = platform.create_task(name="digits", preset="fedavg", model_digests=[digest], rounds=10)
        print(task.id, task.specification.rounds)

Errors come from `coterie.errors`, records from `coterie.records`. Models and updates stream from files and into a
content-addressed cache.
"""

from __future__ import annotations

from coterie.client.identity import Identity
from coterie.client.money import Money
from coterie.client.pairing import PairingApi
from coterie.client.planning import Planning
from coterie.client.sums import SecureSumApi
from coterie.client.tasks import Tasks
from coterie.client.trust import Trust
from coterie.client.work import WorkApi

__all__ = ["Platform"]


class Platform(Identity, PairingApi, Trust, Tasks, WorkApi, SecureSumApi, Planning, Money):
    """A caller's view of the platform; safe to use from several threads."""
