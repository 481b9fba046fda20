"""A device's round in a mesh: the noise it adds, what it charges, and that a crash changes neither."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coterie.errors import Declined
from coterie.privacy.ledger import Limit
from coterie.strategies.device_state import DeviceState, Outgoing, Stream
from tests.unit.coterie.strategies.mesh_devices import (
    Device,
    PostOffice,
    samples,
    send_only,
    work_for,
)


def test_noised_device_hides_nothing_at_first_and_then_its_last_step(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    first = ada.round(work_for(ada, [bobby], 1, noised=True, trusted=False))
    assert first.privacy == ()
    assert ada.ledger.spent().releases == 0
    before = ada.state().learner.parameters
    second = ada.round(work_for(ada, [bobby], 2, noised=True, trusted=False))
    sent = Outgoing.load(ada.memory)
    assert sent is not None
    assert sent.scale == pytest.approx(2 * 0.5 * 5.0 / (8 * 1.0))
    assert np.abs(sent.parameters - before).max() > 0
    assert [(use.mechanism, use.epsilon, use.unit) for use in second.privacy] == [("laplace", 1.0, "example")]
    assert ada.ledger.spent().releases == 1
    assert second.metrics["noise_scale"] == sent.scale


def test_a_crash_after_sending_sends_the_same_noise_again_and_charges_once(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    ada.round(work_for(ada, [bobby], 1, noised=True))
    work = work_for(ada, [bobby], 2, noised=True)
    send_only(ada, work)
    ((_, _, before),) = office.letters_by_round[2, "bobby"].values()
    office.letters_by_round.clear()
    ada.round(work)
    ((_, _, after),) = office.letters_by_round[2, "bobby"].values()
    assert before == after
    sent = Outgoing.load(ada.memory)
    replanned = replace(work, plan_version=2, attempt=2)
    ada.round(replanned)
    again = Outgoing.load(ada.memory)
    assert sent is not None
    assert again is not None
    assert np.array_equal(sent.parameters, again.parameters)
    assert ada.ledger.spent().releases == 1


def test_a_crash_after_the_step_repeats_the_report_and_not_the_step(ada: Device, bobby: Device) -> None:
    first = ada.round(work_for(ada, [bobby]))
    state = ada.state()
    second = ada.round(work_for(ada, [bobby]))
    assert first.report() == second.report()
    assert ada.state().steps == state.steps == 1
    assert np.array_equal(ada.state().learner.parameters, state.learner.parameters)


def test_raw_letters_need_the_owners_leave(office: PostOffice, tmp_path: Path, bobby: Device) -> None:
    careful = Device(office, tmp_path, "careful", limit=Limit(8.0, 1e-5))
    careful.round(work_for(careful, [bobby], 1))  # the common start holds none of its data
    with pytest.raises(Declined, match="allow_raw=True"):
        careful.round(work_for(careful, [bobby], 2))
    assert (2, "bobby") not in office.letters_by_round


def test_the_ledgers_limit_ends_a_noised_devices_part(office: PostOffice, tmp_path: Path, bobby: Device) -> None:
    small = Device(office, tmp_path, "small", limit=Limit(1.5, 1e-5))
    for number in (1, 2):
        small.round(work_for(small, [bobby], number, noised=True))
    with pytest.raises(Declined, match="privacy limit of the device's owner"):
        small.round(work_for(small, [bobby], 3, noised=True))


def test_the_papers_scale_proves_nothing_and_is_charged_as_raw(ada: Device, bobby: Device) -> None:
    for number in (1, 2):
        work = work_for(ada, [bobby], number, noised=True, terms={"sensitivity": "paper"})
        delivery = ada.round(work)
    sent = Outgoing.load(ada.memory)
    assert sent is not None
    assert sent.scale > 0
    assert [charge.mechanism for charge in delivery.privacy] == ["raw"]
    assert (ada.ledger.spent().releases, ada.ledger.spent().raw_releases) == (0, 1)


def test_a_plan_that_sends_raw_parameters_to_a_stranger_is_declined(ada: Device, bobby: Device) -> None:
    with pytest.raises(Declined, match="raw parameters to bobby"):
        ada.round(work_for(ada, [bobby], noised=False, trusted=False))


def test_raw_parameters_kept_from_before_are_not_sent_once_noise_is_due(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    ada.round(work_for(ada, [bobby], 1))
    send_only(ada, work_for(ada, [bobby], 2))
    retained = Outgoing.load(ada.memory)
    assert retained is not None
    assert retained.scale == 0.0
    ada.round(work_for(ada, [bobby], 2, noised=True, trusted=False, plan_version=2, attempt=2))
    drawn = Outgoing.load(ada.memory)
    assert drawn is not None
    assert drawn.scale > 0.0


def test_noised_message_depends_on_earlier_samples_via_what_was_sent(
    office: PostOffice, tmp_path: Path, bobby: Device
) -> None:
    """The claim behind ε per round: given y, a sample of an earlier batch changes nothing any more.

    With the gradient at x, as spec §6 step 3 has it, the two devices' next parameters would differ by more than the
    noise covers, because every sample's gradient of the new batch is taken at another point.
    """
    stepped, common = list[tuple[DeviceState, DeviceState]](), None
    for name, change in (("anna", 0.0), ("emma", 5.0)):
        inputs, targets = samples(1)
        first_batch, _ = Stream(5).take(len(inputs), 8)
        inputs[first_batch[0]] += change
        device = Device(office, tmp_path, name, data=(inputs, targets))
        device.round(work_for(device, [bobby], 1, noised=True))
        state = device.state()
        if common is None:
            common = Outgoing((state.learner.parameters + 0.1).astype(np.float32), 1, 0.5)
        common.save(device.memory)
        device.round(work_for(device, [bobby], 2, noised=True))
        stepped.append((state, device.state()))
    (before, after), (other_before, other_after) = stepped
    assert not np.allclose(before.learner.parameters, other_before.learner.parameters)
    assert np.array_equal(after.learner.parameters, other_after.learner.parameters)
