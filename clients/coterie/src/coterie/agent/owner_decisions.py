"""Apply the owner's decisions from a paired browser: read, verify, carry out, answer, report back.

The device does not trust the relaying platform: `coterie.agent.pairing.judge` checks the signature, device,
number and time. The device stores what it did before it answers, so after a crash it neither forgets a decision nor
repeats an old one.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from coterie.agent.home import DeviceHome
from coterie.agent.pairing import Browser, Choice, Disbelieved, judge, terms_of
from coterie.client import Platform
from coterie.errors import BadAnswer, CoterieError, Declined, Fault, NotFound, Unreachable
from coterie.privacy.ledger import LedgerError
from coterie.records import Decision, DecisionState, Task
from coterie.secure_sums.circle import fingerprint_words

MOST_NOTE_CHARACTERS = 400
TELL_SECONDS = 10.0
"""Between two notes to the owner, at least."""
_log = logging.getLogger("coterie.agent.agent")


class Owner:
    """The owner of a device, whose decisions arrive through linked browsers."""

    def __init__(self, platform: Platform, home: DeviceHome, device_id: str) -> None:
        self._platform, self._home, self._device_id = platform, home, device_id
        self._noted_at = -math.inf
        self._last_notes: dict[str, dict[str, Any]] = {}

    @property
    def is_linked(self) -> bool:
        """Whether a browser was linked on this device."""
        return bool(self._home.browsers())

    def heed(self, do: Callable[[Choice], str]) -> None:
        """Carry out waiting decisions; `do` returns the answer or raises a `CoterieError` with the reason."""
        browsers = self._home.browsers()
        if not browsers:
            return
        for decision in self._platform.decisions(self._device_id, waiting=True):
            state, note = self._take(decision, browsers, do)
            _log.info("%s: %s (%s)", self._device_id, note, state)
            try:
                self._platform.answer_decision(self._device_id, decision.id, state, note[:MOST_NOTE_CHARACTERS])
            except NotFound:  # the owner ended the link meanwhile
                _log.info("%s: the link of this decision has ended", self._device_id)

    def _take(
        self, decision: Decision, browsers: Mapping[str, Browser], do: Callable[[Choice], str]
    ) -> tuple[DecisionState, str]:
        browser = browsers.get(decision.link_id)
        last = self._home.last_heard(browser.link) if browser else 0
        try:
            choice = judge(decision, browser, self._device_id, last, time.time())
        except Disbelieved as error:
            return DecisionState.REFUSED, f"not believed: {error}"
        try:
            state, note = DecisionState.DONE, do(choice)
        except (Fault, BadAnswer, Unreachable):
            raise  # the platform's own trouble: the decision waits
        except CoterieError as error:
            state, note = DecisionState.REFUSED, str(error)
        self._home.save_last_heard(choice.link, choice.number)
        return state, note.replace("\n", " ")

    def tell(self, *, now: bool = False) -> None:
        """Leave each linked browser a sealed note where it has changed, at most once in `TELL_SECONDS`."""
        browsers = self._home.browsers()
        if not browsers or (not now and time.monotonic() - self._noted_at < TELL_SECONDS):
            return
        self._noted_at = time.monotonic()
        note = note_of(self._home)
        news = {link: browser for link, browser in browsers.items() if self._last_notes.get(link) != note}
        for link, browser in news.items():
            try:
                self._platform.put_note(self._device_id, link, browser.seal({**note, "at": time.time()}))
                self._last_notes[link] = note
            except NotFound:
                _log.warning("%s: link %s was ended; its browser decides no more", self._device_id, link)
                self._home.forget_browser(link)


def agreed(task: Task, terms: str) -> None:
    """Raise `Declined` unless the task has the terms that the owner saw."""
    if terms_of(task.id, task.specification) != terms:
        raise Declined("the task is not what the page showed its owner; look at it again, and decide again")


def note_of(home: DeviceHome) -> dict[str, Any]:
    """Return the owner's note: privacy limit and spending, circle, and approved tasks."""
    note: dict[str, Any] = {
        "paused": home.is_paused,
        "approved": sorted(home.approved()),
        "words": fingerprint_words(home.keys().public().signing),
        "circle": [
            {"device": device, "owner": member.owner, "words": fingerprint_words(member.signing_key)}
            for device, member in sorted(home.circle().members.items())
        ],
    }
    try:
        ledger = home.ledger()
        limit, spent = ledger.limit, ledger.spent()
        note["privacy"] = {
            "spent": spent.epsilon,
            "limit": limit.epsilon,
            "delta": limit.delta,
            "unit": limit.unit,
            "releases": spent.releases,
            "raw": spent.raw_releases,
        }
    except LedgerError as error:
        note["trouble"] = str(error)
    return note
