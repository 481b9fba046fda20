"""Interactions, relations and trust."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from coterie.client.rest import PAGE_ITEMS, RestClient
from coterie.records import (
    HistoryPoint,
    ImportProgress,
    Interaction,
    Items,
    Loss,
    Recorded,
    Relation,
    RelationCounts,
    TrustedPeer,
    TrustExplanation,
    TrustGraph,
)

LONG_SECONDS = 120.0
IMPORT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Meeting:
    """A device's own side of a meeting: with whom, when (Unix seconds), for how long, and whether it went well."""

    other: str
    at: float
    duration_seconds: float
    positive: bool = True
    note: str = ""


class Trust(RestClient):
    """Interactions, relations and trust. Times are Unix seconds; 0 is now, or the beginning."""

    def record_interactions(self, interactions: Iterable[Mapping[str, Any]]) -> Recorded:
        """Records what devices did together; repeats are ignored by id.

        What a device says was good counts when the other end says so too; what it says was bad counts at once.
        """
        body = {"interactions": [dict(interaction) for interaction in interactions]}
        return self.ask(Recorded, "POST", "/v1/interactions", json=body, idempotent=True)

    def report_meetings(self, device_id: str, meetings: Iterable[Meeting]) -> Recorded:
        """Reports one device's side of meetings; a good one counts when the other end reports it too.

        Repeating it is safe: ids are made of the other device and the time.
        """
        return self.record_interactions(
            {
                "id": f"met-{meeting.other}-{meeting.at:.3f}",
                "device_a": device_id,
                "device_b": meeting.other,
                "positive": meeting.positive,
                "duration_seconds": meeting.duration_seconds,
                "at": meeting.at,
                "kind": "meeting",
                "note": meeting.note,
            }
            for meeting in meetings
        )

    def interactions(self, device_a: str, device_b: str = "") -> Iterator[Interaction]:
        """What a device did with others, or with one of them; newest first."""
        return self.pages(Interaction, "/v1/interactions", device_a=device_a, device_b=device_b)

    def explain_trust(self, a: str, b: str, *, at: float = 0.0) -> TrustExplanation:
        """How far one device trusts another, and why."""
        return self.ask(TrustExplanation, "GET", f"/v1/trust/pairs/{a}/{b}", params={"at": at})

    def trust_history(
        self, a: str, b: str, *, since: float = 0.0, until: float = 0.0, points: int = 50
    ) -> tuple[HistoryPoint, ...]:
        """Direct trust of a pair at evenly spaced times."""
        params = {"since": since, "until": until, "points": points}
        return self.ask(Items[HistoryPoint], "GET", f"/v1/trust/pairs/{a}/{b}/history", params=params).items

    def trust_peers(self, device_id: str, *, limit: int = PAGE_ITEMS, at: float = 0.0) -> tuple[TrustedPeer, ...]:
        """How far a device trusts those it knows, most trusted first."""
        params = {"limit": limit, "at": at}
        return self.ask(Items[TrustedPeer], "GET", f"/v1/trust/peers/{device_id}", params=params).items

    def trust_graph(self, *, owner: str = "", task: str = "", least: float = 0.0, at: float = 0.0) -> TrustGraph:
        """Devices and their ties: of one owner, of one task's enrolled devices, or of all."""
        params = {"owner": owner, "task": task, "least": least, "at": at}
        return self.ask(TrustGraph, "GET", "/v1/trust/graph", params=params, wait_seconds=LONG_SECONDS)

    def trust_losses(self, *, device: str = "", since: float = 0.0, limit: int = 20) -> tuple[Loss, ...]:
        """Pairs that lost most direct trust, with the interactions that did it."""
        params = {"device": device, "since": since, "limit": limit}
        return self.ask(Items[Loss], "GET", "/v1/trust/losses", params=params).items

    def relations(self, device_id: str) -> Iterator[Relation]:
        """Ownership, co-location, friendship and the like, of one device."""
        return self.pages(Relation, f"/v1/trust/relations/{device_id}")

    def derive_relations(self, kinds: Iterable[str] = ()) -> Mapping[str, int]:
        """Derive relations of these kinds, or all, again from profiles and meetings; return their number by kind."""
        body, path = {"kinds": list(kinds)}, "/v1/trust/relations/derive"
        return self.ask(RelationCounts, "POST", path, json=body, idempotent=True, wait_seconds=LONG_SECONDS).counts

    def declare_friendship(self, owner_a: str, owner_b: str, strength: float) -> Relation:
        """How close two owners are, in [0, 1]; 0 withdraws the friendship.

        A device speaks for its own owner, named first; the friendship holds when the other owner declares it too.
        """
        return self.ask(
            Relation, "PUT", f"/v1/trust/friendships/{owner_a}/{owner_b}", json={"strength": strength}, idempotent=True
        )

    def friendships(self, owner_id: str) -> Iterator[Relation]:
        """An owner's friendships, also those that wait for one of the two."""
        return self.pages(Relation, f"/v1/trust/friendships/{owner_id}")

    def import_rows(self, body: bytes) -> ImportProgress:
        """Imports NDJSON, a header and rows; lines stored before are passed over, so it is safe to repeat."""
        return self.ask(
            ImportProgress,
            "POST",
            "/v1/trust/imports",
            content=lambda: body,
            idempotent=True,
            wait_seconds=IMPORT_SECONDS,
        )

    def import_progress(self, name: str) -> ImportProgress:
        """How far an import got."""
        return self.ask(ImportProgress, "GET", f"/v1/trust/imports/{quote(name, safe='')}")
