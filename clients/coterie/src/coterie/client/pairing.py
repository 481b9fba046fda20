"""Links to owners' browsers, and the decisions made in them."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.client.rest import RestClient
from coterie.records import ApiKey, BrowserLink, Decision, DecisionState, Items
from coterie.records.reading import plain


class PairingApi(RestClient):
    """A device and the browsers of its owner."""

    def make_link(self, device_id: str, *, token_digest: bytes, lifetime_seconds: float = 600.0) -> BrowserLink:
        """Offers a link that one browser may take (`coterie.agent.pairing.LinkSecret`)."""
        body = plain({"token_digest": token_digest, "lifetime_seconds": lifetime_seconds})
        return self.ask(BrowserLink, "POST", f"/v1/devices/{device_id}/links", json=body)

    def claim_link(
        self, link_id: str, *, token: bytes, browser_key: bytes, proof: bytes, name: str = ""
    ) -> BrowserLink:
        """Takes a link for a browser; the same browser may repeat it."""
        body = plain({"token": token, "browser_key": browser_key, "proof": proof, "name": name})
        return self.ask(BrowserLink, "POST", f"/v1/links/{link_id}/claim", json=body, idempotent=True)

    def begin_session(self, link_id: str, *, at_milliseconds: int, signature: bytes) -> ApiKey:
        """An API key for the browser of a link, which signed `coterie.agent.pairing.session_message`."""
        body = plain({"at_milliseconds": at_milliseconds, "signature": signature})
        return self.ask(ApiKey, "POST", f"/v1/links/{link_id}/sessions", json=body)

    def links(self, device_id: str) -> Sequence[BrowserLink]:
        """A device's links, newest first."""
        return self.ask(Items[BrowserLink], "GET", f"/v1/devices/{device_id}/links").items

    def end_link(self, device_id: str, link_id: str) -> None:
        """Ends a link: its browser is signed out and decides no more."""
        self.request("DELETE", f"/v1/devices/{device_id}/links/{link_id}", idempotent=True)

    def put_note(self, device_id: str, link_id: str, note: bytes) -> None:
        """Leaves a sealed note for the browser of a link (`coterie.agent.pairing.Browser.seal`)."""
        self.request(
            "PUT", f"/v1/devices/{device_id}/links/{link_id}/note", json=plain({"note": note}), idempotent=True
        )

    def decide(self, device_id: str, *, text: str, signature: bytes) -> Decision:
        """Passes a signed decision on to a device; for the browser of a link."""
        body = plain({"text": text, "signature": signature})
        return self.ask(Decision, "POST", f"/v1/devices/{device_id}/decisions", json=body)

    def decisions(self, device_id: str, *, waiting: bool = False, limit: int = 100) -> Sequence[Decision]:
        """A device's decisions, newest first, or those that wait, oldest first."""
        asked = {"waiting": str(waiting).lower(), "limit": limit}
        return self.ask(Items[Decision], "GET", f"/v1/devices/{device_id}/decisions", params=asked).items

    def answer_decision(self, device_id: str, decision_id: str, state: DecisionState, note: str = "") -> Decision:
        """Says what the device did with a decision."""
        path = f"/v1/devices/{device_id}/decisions/{decision_id}/answer"
        return self.ask(Decision, "PUT", path, json={"state": str(state), "note": note}, idempotent=True)
