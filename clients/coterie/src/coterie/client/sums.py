"""Secure sums: the documents that bind a sum, and the duties of a clerk."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coterie.client.rest import RestClient, promised
from coterie.errors import BadAnswer
from coterie.records import Duty, Items, SurvivorList, WantedShares

if TYPE_CHECKING:
    from coterie.secure_sums.terms import Place


class SecureSumApi(RestClient):
    """Duties of the calling device, and the documents of the sums it is in. Keys and signatures are bytes."""

    def duties(self, *, wait_seconds: float = 0.0) -> tuple[Duty, ...]:
        """What the calling device is to do as a clerk; waits for it."""
        params = {"wait": wait_seconds}
        return self.ask(Items[Duty], "GET", "/v1/duties", params=params, wait_seconds=wait_seconds).items

    def put_key_offer(self, place: Place, device_id: str, *, session_key: bytes, signature: bytes) -> None:
        """Offers a session key for a session; safe to repeat with the same key."""
        body = {"session_key": session_key.hex(), "signature": signature.hex()}
        self.request("PUT", f"{_path(place)}/key-offers/{device_id}", json=body)

    def sum_terms(self, place: Place) -> str:
        """The canonical text of a sum's terms, for its clerks; devices find it in their work."""
        return self._text(f"{_path(place)}/terms")

    def sum_participants(self, place: Place, digest: str) -> str:
        """The canonical list of who takes part, whose digest the terms name; kept in the cache."""
        return self._download(f"{_path(place)}/participants", digest).read_text()

    def sum_candidates(self, place: Place) -> str:
        """The canonical list of who delivered, as it stands now."""
        return self._text(f"{_path(place)}/candidates")

    def sum_letters(self, place: Place) -> Mapping[str, bytes]:
        """The candidates' letters to the calling clerk, by device."""
        from coterie.secure_sums.protocol_lists import (
            read_framed,  # with numpy and keys behind it: a fifth of importing the client
        )

        stream = self.request("GET", f"{_path(place)}/letters", consume=lambda response: response.read())
        return dict(read_framed(io.BytesIO(stream)))

    def put_ready_check(
        self, place: Place, device_id: str, *, candidates: str, ready: Sequence[str], faults: Mapping[str, str]
    ) -> None:
        """Says which of the candidates (named by their list's digest) this clerk can serve."""
        body = {"candidates": candidates, "ready": list(ready), "faults": dict(faults)}
        self.request("PUT", f"{_path(place)}/ready-checks/{device_id}", json=body)

    def sum_survivors(self, place: Place) -> list[tuple[str, bytes]]:
        """Whom the clerks are to agree to, by id, each with its root; raise `BadTerms` for anything else."""
        from coterie.secure_sums import canonical
        from coterie.secure_sums.protocol_lists import read_survivors

        result = self.ask(SurvivorList, "GET", f"{_path(place)}/survivors")
        return read_survivors(canonical.encode([list(row) for row in result.survivors]))

    def put_commit(self, place: Place, device_id: str, *, digest: bytes, signature: bytes) -> None:
        """Agrees to the survivors with this digest."""
        body = {"digest": digest.hex(), "signature": signature.hex()}
        self.request("PUT", f"{_path(place)}/commits/{device_id}", json=body)

    def sum_commits(self, place: Place) -> Mapping[str, bytes]:
        """Signatures of the clerks that agreed; without those that are not hexadecimal."""
        result: Any = self.request("GET", f"{_path(place)}/commits")
        if not isinstance(result, Mapping):
            raise BadAnswer("the platform's answer cannot be read: agreements are not an object")
        return {clerk: signature for clerk, text in result.items() if (signature := _bytes(text)) is not None}

    def put_answer(
        self, place: Place, device_id: str, *, digest: bytes, digests: Mapping[int, bytes], signature: bytes
    ) -> tuple[int, ...]:
        """Send the digests of this clerk's share sums; return which of the sums the platform needs now."""
        share_digests = {str(share): item.hex() for share, item in digests.items()}
        body = {"digest": digest.hex(), "digests": share_digests, "signature": signature.hex()}
        return self.ask(WantedShares, "PUT", f"{_path(place)}/answers/{device_id}", json=body).wanted

    def put_share(self, place: Place, device_id: str, share: int, words: bytes) -> None:
        """Hands one share sum in."""
        digest, content = promised(words)
        path = f"{_path(place)}/answers/{device_id}/shares/{share}"
        self.request("PUT", path, headers={"Coterie-Digest": digest}, content=content)

    def _text(self, path: str) -> str:
        """A document as it came: what others signed is the text, not what it says."""
        text: str = self.request("GET", path, consume=lambda response: response.read().decode())
        return text


def _path(place: Place) -> str:
    return f"/v1/tasks/{place.task}/rounds/{place.round}/sums/{place.cohort}/{place.session_number}"


def _bytes(text: object) -> bytes | None:
    try:
        return bytes.fromhex(str(text))
    except ValueError:
        return None
