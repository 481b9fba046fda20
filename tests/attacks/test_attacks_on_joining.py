"""A device that joined a task as secure does nothing less, ever after: downgrades, old places, other terms."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from coterie.agent.home import DeviceHome
from coterie.agent.mail import Mail
from coterie.agent.report import Delivery
from coterie.errors import Declined
from coterie.privacy.ledger import Limit
from coterie.records import WorkItem
from coterie.records.enums import Role
from coterie.secure_sums import joining
from coterie.secure_sums.circle import Circle
from coterie.secure_sums.contribution import purpose, rho_alone
from coterie.secure_sums.grid import choose_grid
from coterie.secure_sums.joining import Joined
from coterie.secure_sums.terms import Participants, Place, Terms
from coterie.strategies import masked, strategy_for, sums_apart
from coterie.strategies.context import RoundContext
from coterie.strategies.star import Star
from tests.answers import made
from tests.attacks.sum_fixture import TASK, SumFixture, check_signed_body, circle_of, keys_of, names, owner_of
from tests.e2e.secure_device import Learner

ME = "dev_07"
BODY = save({"b": np.zeros(2, np.float32), "a": np.zeros((1, 3), np.float32)})
MODEL = hashlib.sha256(BODY).hexdigest()
OPEN = Limit(1e6, 1e-5, "device", allow_raw=True)
SECURE = Joined("none", secure=True, colluders=1)
NOISY = Joined("uniform", secure=True, colluders=1, noise_multiplier=2.0)


CLEAR = made(WorkItem, topology="star", privacy="none", role="solo", sum=None)


class Shown:
    """The platform as far as it shows a device who takes part."""

    def __init__(self, people: Participants) -> None:
        self.people = people

    def sum_participants(self, place: Place, digest: str) -> str:
        return self.people.text


class DutyIndex:
    """One device with a folder, at a sum whose terms the platform writes as it likes."""

    def __init__(self, folder: Path) -> None:
        self.sum_fixture, self.home = SumFixture(folder, least=6), DeviceHome(folder / "home")
        self.circle = circle_of(names(8))
        (folder / MODEL).write_bytes(BODY)
        self.folder = folder
        self.circles: list[Circle] = []

    def terms(self, noise: float = 0.0, **changes: Any) -> Terms:
        terms = dataclasses.replace(self.sum_fixture.terms(), model=MODEL)
        if noise:
            grid = choose_grid(terms.count, terms.elements, 1.0, noise, terms.honest)
            terms = dataclasses.replace(terms, noise_multiplier=repr(noise), bits=grid.bits, scale=grid.scale)
        return dataclasses.replace(terms, **changes)

    def context(self, terms: Terms, joined: Joined = SECURE, limit: Limit = OPEN) -> RoundContext:
        work = made(
            WorkItem,
            task_id=TASK,
            round=terms.round,
            model_digests=[MODEL],
            privacy=joined.privacy,
            topology="star",
            sum=terms.text,
            self_weight=1.0,
        )
        shown: Any = Shown(self.sum_fixture.participants)
        training: Any = Learner()
        keys = keys_of(ME)
        return RoundContext(
            work,
            ME,
            keys,
            training,
            10,
            Mail(shown, work, ME, keys, self.home.outbox, self.circle),
            self.home.ledger(limit),
            {},
            self.home.memory(TASK),
            self.home.outbox,
            lambda digest: self.folder / digest,
            1,
            joined_as=joined.privacy,
            joined=joined,
            owner_id=owner_of(ME),
            keep_circle=self.circles.append,
        )

    def round(self, terms: Terms, joined: Joined = SECURE, limit: Limit = OPEN) -> Delivery:
        return Star().prepare(self.context(terms, joined, limit))

    def nothing_spent(self) -> bool:
        spent = self.home.ledger().spent()
        return (spent.releases, spent.raw_releases) == (0, 0)


@pytest.fixture
def desk(tmp_path: Path) -> DutyIndex:
    return DutyIndex(tmp_path)


def test_an_honest_sum_is_taken_part_in_and_charged_by_its_terms(desk: DutyIndex) -> None:
    terms = desk.terms(noise=2.0)
    delivery = desk.round(terms, NOISY)
    assert (delivery.form, delivery.metrics, delivery.weight) == ("masked", {}, 1.0)
    assert delivery.sum is not None
    assert delivery.sum.terms == terms.digest.hex()
    body = save(dict(delivery.tensors or {}))
    signature = bytes.fromhex(delivery.sum.signature)
    check_signed_body(body, terms, ME, keys_of(ME).public().signing, signature)
    (charge,) = delivery.privacy
    assert (charge.purpose, charge.multiplier, charge.adjacency) == (purpose(terms), 2.0, "left-out")
    sums, rho = desk.home.ledger().sums_alone()
    assert (sums, rho) == (1, rho_alone(terms))


def test_the_vector_is_in_the_order_of_the_data_in_the_models_file(desk: DutyIndex) -> None:
    """Not of names, nor of the header: in this file b lies before a, which the header names first."""
    places = {"a": ([1, 3], [8, 20]), "b": ([2], [0, 8])}
    tensors = {name: {"dtype": "F32", "shape": s, "data_offsets": o} for name, (s, o) in places.items()}
    header = json.dumps(tensors).encode()
    (desk.folder / MODEL).write_bytes(len(header).to_bytes(8, "little") + header + bytes(20))
    change = {"a": np.array([[1.0, 2.0, 3.0]]), "b": np.array([4.0, 5.0])}
    assert masked.in_file_order(desk.context(desk.terms()), change).tolist() == [4.0, 5.0, 1.0, 2.0, 3.0]


def test_work_without_terms_is_never_done_once_joined_as_secure(tmp_path: Path) -> None:
    path = tmp_path / "joined" / "t.json"
    assert joining.load_or_store(path, Joined("none", secure=True)).secure
    # The platform shows the task as clear at the next start.
    later = joining.load_or_store(path, Joined("none", secure=False))
    assert later.secure
    with pytest.raises(Declined, match="joined as secure"):
        masked.refuse_downgrade(CLEAR, later, Circle())
    masked.refuse_downgrade(dataclasses.replace(CLEAR, sum="{}"), later, Circle())
    assert path.stat().st_mode & 0o777 == 0o600


def test_unclustered_work_in_secure_clusters_needs_all_promised_noise() -> None:
    parameters = {"sums": {"mode": "secure"}, "privacy": {"noise_max": 0.6, "trust_threshold": 0.7}}
    assert sums_apart("clusters")
    assert not sums_apart("star")
    joined = Joined.of("trust", parameters, apart=True)
    alone = dataclasses.replace(CLEAR, role=Role.SOLO, topology="clusters", privacy="trust", noise_multiplier=0.6)
    masked.refuse_downgrade(alone, joined, Circle())
    less = dataclasses.replace(alone, noise_multiplier=0.59)
    for work in (less, dataclasses.replace(alone, role=Role.MEMBER), dataclasses.replace(alone, role=Role.HEAD)):
        with pytest.raises(Declined, match="joined as secure"):
            masked.refuse_downgrade(work, joined, Circle())
    raw = Joined.of("none", {"sums": {"mode": "secure"}}, apart=True)
    with pytest.raises(Declined, match="joined as secure"):
        masked.refuse_downgrade(dataclasses.replace(alone, noise_multiplier=0.0), raw, Circle())


def test_the_clerks_of_a_cluster_are_up_to_four_of_its_members() -> None:
    joined = Joined.of("trust", {"sums": {"mode": "secure"}, "privacy": {"noise_max": 0.6}}, apart=True)
    assert [joined.promise(3, 2, count, 0.25).clerks for count in (3, 4, 9)] == [3, 4, 4]
    assert joined.promise(3, 2, 4, 0.25).noise_multiplier == 0.25, "by trust; charged as it is"
    uniform = Joined.of("uniform", {"sums": {"mode": "secure"}, "privacy": {"noise_multiplier": 2.0}}, apart=True)
    assert uniform.promise(3, 2, 4, 0.25).noise_multiplier == 2.0, "what was promised, whatever the terms have"


def test_a_task_that_became_secure_is_secure_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "joined" / "t.json"
    assert not joining.load_or_store(path, Joined("uniform", noise_multiplier=2.0)).secure
    assert joining.load_or_store(path, NOISY) == NOISY
    assert joining.load_or_store(path, dataclasses.replace(NOISY, noise_multiplier=0.1)) == NOISY


def test_an_owner_of_secure_sums_only_does_nothing_in_the_clear() -> None:
    with pytest.raises(Declined, match="clear-too"):
        masked.refuse_downgrade(CLEAR, Joined("none"), Circle(secure_only=True))
    masked.refuse_downgrade(CLEAR, Joined("none"), Circle())


@pytest.mark.parametrize(
    ("joined", "changes", "why"),
    [
        (NOISY, {"noise_multiplier": "0.0"}, "other noise"),
        (NOISY, {"noise_multiplier": "0.5"}, "other noise"),
        (NOISY, {"noise_multiplier": "nan"}, "reals"),
        (NOISY, {"honest": 6}, "contradict each other|more honest"),
        (SECURE, {"model": "0" * 64}, "another model"),
        (SECURE, {"round": 2, "task": "tsk_other"}, "another round"),
        (dataclasses.replace(SECURE, clerks=5, threshold=3), {}, "another number of clerks"),
        (Joined("none"), {}, "joined the task with clear sums"),
    ],
)
def test_weaker_terms_than_joined_for_are_declined_without_a_charge(
    desk: DutyIndex, joined: Joined, changes: Mapping[str, Any], why: str
) -> None:
    terms = desk.terms(joined.noise_multiplier, **changes)
    context = desk.context(terms, joined)
    with pytest.raises(Declined, match=why):
        Star().prepare(context)
    assert desk.nothing_spent()


def test_unknown_clerks_are_declined_with_the_commands_that_admit_them(desk: DutyIndex) -> None:
    desk.circle = Circle()
    with pytest.raises(Declined, match="coterie circle verify dev_00"):
        desk.round(desk.terms())
    assert desk.nothing_spent()


def test_same_terms_are_one_charge_and_other_terms_of_the_place_refused(desk: DutyIndex) -> None:
    terms = desk.terms(noise=2.0)
    desk.round(terms, NOISY)
    desk.round(terms, NOISY)  # killed before the outbox held it: prepared again at no cost
    assert desk.home.ledger().spent().releases == 1
    with pytest.raises(Declined, match="other terms"):
        desk.round(dataclasses.replace(terms, plan_version=2), NOISY)
    desk.sum_fixture.session_number = 2
    desk.round(desk.terms(noise=2.0), NOISY)
    assert desk.home.ledger().spent().releases == 2
    with pytest.raises(Declined, match="does not repeat"):
        desk.round(terms, NOISY)


def test_without_noise_model_is_summed_once_and_second_session_is_declined(desk: DutyIndex) -> None:
    desk.round(desk.terms())
    desk.sum_fixture.session_number = 2
    with pytest.raises(Declined, match="only one update of a model"):
        desk.round(desk.terms())
    assert desk.home.ledger().spent().raw_releases == 1


def test_beyond_the_owners_limit_nothing_is_noted_or_sent(desk: DutyIndex) -> None:
    terms = desk.terms(noise=2.0)
    with pytest.raises(Declined, match="privacy limit of the device's owner"):
        desk.round(terms, NOISY, Limit(0.5, 1e-5, "device"))
    assert desk.home.ledger().sums_alone() == (0, 0.0)
    desk.home.ledger().set_limit(OPEN)
    desk.round(terms, NOISY)


def test_a_clerk_seen_first_is_kept_before_anything_leaves(desk: DutyIndex) -> None:
    desk.circle = dataclasses.replace(Circle(), mode="first-use")
    desk.round(desk.terms())
    assert set(desk.circles[-1].seen) == set(names(4))
    assert desk.circles[-1].members == {}


def test_colluders_default_as_the_specification_says() -> None:
    assert Joined("none", secure=True).promise(8).colluders == 1
    assert Joined("none", secure=True).promise(33).colluders == 4
    assert Joined("none", secure=True, threshold=3, clerks=5).promise(8).colluders == 2
    assert Joined.of("uniform", {"privacy": {"epsilon": 1.0, "delta": 1e-5}}).noise_multiplier == pytest.approx(
        3.730632, abs=1e-5
    )


@pytest.mark.parametrize(
    ("topology", "privacy", "incentive"),
    [("mesh", "partial", "none"), ("cells", "optimised", "none")],
)
def test_terms_beside_unmasked_work_do_not_bypass_checks(
    desk: DutyIndex, topology: str, privacy: str, incentive: str
) -> None:
    """Such a strategy would hand its update in as it is, or send it to others in letters."""
    work = dataclasses.replace(desk.context(desk.terms()).work, topology=topology, privacy=privacy, incentive=incentive)
    with pytest.raises(Declined, match="in the clear only"):
        strategy_for(work)
    assert strategy_for(dataclasses.replace(work, sum=None))
