"""The agent against a stand-in platform: rounds, restarts, refusals, noise within the device's limit."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from coterie.agent.agent import Agent
from coterie.agent.cache import BlobCache
from coterie.agent.report import Delivery
from coterie.agent.results import RoundResult, RunSummary
from coterie.errors import BadHome, CoterieError, Unauthenticated
from coterie.learning.training import model_bytes, single_threaded
from coterie.privacy.ledger import Limit
from coterie.privacy.simulation import SeededStream
from coterie.records import WorkItem
from coterie.strategies.context import RoundContext, round_seed
from coterie.strategies.star import Star
from tests.e2e.stand_in import StandIn, problem

CLAIMED_ONCE = {"sampling_rate": 1.0, "steps": 1}
UPDATE = "PUT /v1/tasks/{task}/rounds/{round:int}/updates/{device}"
single_threaded()


def module() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 3))


def samples(seed: int = 0, count: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=draw)
    return inputs, inputs[:, :3].argmax(dim=1)


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn(model_bytes(module()), rounds=3, training={"epochs": 2, "batch_size": 8}) as server:
        yield server


def agent_at(stand_in: StandIn, home: Path, **options: Any) -> Agent:
    options.setdefault("cache", BlobCache(home / "cache"))
    return Agent.register(stand_in.url, "ct_t.s", name="phone", home=home, model=module(), data=samples(), **options)


def run(stand_in: StandIn, home: Path, **options: Any) -> RunSummary:
    agent = agent_at(stand_in, home, **options)
    agent.join("tiny")
    return agent.run()


def test_an_agent_trains_every_round_and_ends_with_the_task(stand_in: StandIn, tmp_path: Path) -> None:
    summary = run(stand_in, tmp_path)
    assert summary.tasks == {"tsk_1": "finished"}
    assert [result.outcome for result in summary.rounds] == ["accepted"] * 3
    losses = [result.metrics["loss"] for result in summary.rounds]
    assert losses[2] < losses[0]
    assert stand_in.enrolled == {"dev_1": 40}
    assert stand_in.reports[1, "dev_1"]["weight"] == 40
    assert str(summary) == "3 of 3 rounds delivered; tsk_1 finished"


def test_update_is_change_of_model_and_metrics_are_those_of_model_received(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.training = {"epochs": 0}
    run(stand_in, tmp_path)
    assert all(not tensor.any() for tensor in load(stand_in.updates[1, "dev_1"][0]).values())
    expected = torch.nn.functional.cross_entropy(module().eval()(samples()[0]), samples()[1])
    assert stand_in.reports[1, "dev_1"]["metrics"]["loss"] == pytest.approx(float(expected.detach()), rel=1e-6)


def test_two_devices_of_the_same_name_seed_and_data_make_the_same_bits(tmp_path: Path) -> None:
    bodies: list[list[object]] = []
    for attempt in ("a", "b"):
        with StandIn(model_bytes(module()), rounds=2, training={"epochs": 1}) as server:
            torch.rand(len(bodies) + 1)  # whatever else the process draws must not matter
            run(server, tmp_path / attempt)
            bodies.append([server.updates[1, "dev_1"], server.updates[2, "dev_1"], server.newest])
    assert bodies[0] == bodies[1]


def test_seeds_differ_by_task_round_and_device() -> None:
    seeds = {round_seed(s, t, r, d) for s in (0, 1) for t in ("a", "b") for r in (1, 2) for d in ("x", "y")}
    assert len(seeds) == 16
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_keys_and_identity_are_private_files_and_restart_needs_no_token(stand_in: StandIn, tmp_path: Path) -> None:
    agent_at(stand_in, tmp_path)
    for name in ("keys.json", "device.json", "ledger.db"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    again = Agent.register(stand_in.url, home=tmp_path, model=module(), data=samples())
    assert again.identity.id == "dev_1"
    assert len(stand_in.registered) == 1
    assert "ck_" not in repr(again.identity)


def test_a_new_folder_without_a_token_is_refused_with_what_to_do(stand_in: StandIn, tmp_path: Path) -> None:
    with pytest.raises(BadHome, match="token from an admin"):
        Agent.register(stand_in.url, home=tmp_path, model=module(), data=samples())


def test_a_device_that_dies_after_preparing_sends_the_same_bytes_again(stand_in: StandIn, tmp_path: Path) -> None:
    """Killed between storing and sending, and once more after the platform had the update but before the answer."""

    @dataclass
    class Once:
        calls: int = 0

        def prepare(self, context: RoundContext) -> Delivery:
            self.calls += 1
            tensors = {name: np.full_like(value, np.random.random()) for name, value in context.model().items()}
            return Delivery(tensors, 1.0)

    first = agent_at(stand_in, tmp_path, choose=lambda work: Once())
    first.join("tiny")
    item = WorkItem.from_json(stand_in._item())
    prepared = first._bench.prepare(item)
    assert prepared.body is not None
    before = prepared.body.read_bytes()
    first.close()
    counting = Once()
    summary = run(stand_in, tmp_path, choose=lambda work: counting)
    assert stand_in.updates[1, "dev_1"] == [before]
    assert counting.calls == 2  # rounds 2 and 3
    assert [result.outcome for result in summary.rounds] == ["accepted"] * 3


def test_a_damaged_outbox_is_made_again(stand_in: StandIn, tmp_path: Path) -> None:
    agent = agent_at(stand_in, tmp_path)
    agent.join("tiny")
    item = WorkItem.from_json(stand_in._item())
    prepared = agent._bench.prepare(item)
    assert prepared.body is not None
    whole = prepared.body.read_bytes()
    prepared.body.write_bytes(whole[:-1])
    again = agent._bench.prepare(item).body
    agent.close()
    assert again is not None
    assert again.read_bytes() == whole


def test_an_upload_cut_by_503_is_repeated(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.faults[UPDATE] = [problem(503, "unavailable")] * 2
    assert run(stand_in, tmp_path).tasks == {"tsk_1": "finished"}


def test_a_fault_of_the_platform_is_survived(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.faults[UPDATE] = [problem(500, "internal", "an unexpected fault")]
    stand_in.faults["GET /v1/work"] = [problem(500, "internal"), problem(502, "")]
    assert run(stand_in, tmp_path).tasks == {"tsk_1": "finished"}
    assert len(stand_in.updates) == 3


def test_the_gateway_may_restart_under_a_running_agent(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.rounds = 30
    agent = agent_at(stand_in, tmp_path)
    agent.join("tiny")
    summaries: list[RunSummary] = []
    thread = threading.Thread(target=lambda: summaries.append(agent.run()))
    thread.start()
    while stand_in.round < 3:
        thread.join(0.01)
    stand_in.stop()
    thread.join(0.3)
    stand_in.start()
    thread.join(30)
    assert summaries[0].tasks == {"tsk_1": "finished"}


def test_update_that_is_refused_is_declined_so_that_others_need_not_wait(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.faults[UPDATE] = [problem(400, "bad_update", "tensor 0.weight is missing")]
    summary = run(stand_in, tmp_path)
    assert [result.outcome for result in summary.rounds] == ["refused", "accepted", "accepted"]
    assert stand_in.declined == [(1, "its update was refused: tensor 0.weight is missing")]


def test_a_round_that_was_over_is_no_failure(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.faults[UPDATE] = [problem(409, "round_over", "too late")]
    summary = run(stand_in, tmp_path)
    assert summary.rounds[0].outcome == "late"
    assert summary.tasks == {"tsk_1": "finished"}


def test_a_revoked_key_ends_the_agent_with_the_platforms_words(stand_in: StandIn, tmp_path: Path) -> None:
    agent = agent_at(stand_in, tmp_path)
    agent.join("tiny")
    stand_in.faults["GET /v1/work"] = [problem(401, "invalid_api_key", "the key was revoked")]
    with pytest.raises(Unauthenticated, match="revoked"):
        agent.run()


def test_a_fault_in_training_is_declined_and_shown_to_the_author(stand_in: StandIn, tmp_path: Path) -> None:
    class Broken:
        def prepare(self, context: RoundContext) -> Delivery:
            raise ZeroDivisionError("in the author's code")

    with pytest.raises(ZeroDivisionError):
        run(stand_in, tmp_path, choose=lambda work: Broken())
    assert stand_in.declined == [(1, "training failed: ZeroDivisionError: in the author's code")]


@pytest.mark.parametrize("hidden", [{"privacy": "uniform", "noise_multiplier": 2.0}, {"privacy": "none"}])
def test_private_task_learns_error_type_and_device_logs_all(
    stand_in: StandIn, tmp_path: Path, hidden: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """By noise, or by telling sums alone: an error's words may hold what that is to hide."""

    class Broken:
        def prepare(self, context: RoundContext) -> Delivery:
            raise ValueError("salary 4200")

    stand_in.work = hidden
    stand_in.promised = {"sums": {"mode": "secure" if hidden["privacy"] == "none" else "clear"}}
    agent = agent_at(stand_in, tmp_path, choose=lambda work: Broken())
    agent.join("tiny")
    work = replace(WorkItem.from_json(stand_in._item()), sum="terms" if hidden["privacy"] == "none" else None)
    with pytest.raises(ValueError, match="salary"):
        agent._bench.do(work)
    agent.close()
    assert stand_in.declined == [(1, "training failed: ValueError")]
    assert "salary 4200" in caplog.text


def test_a_model_for_another_module_is_declined_with_the_difference(stand_in: StandIn, tmp_path: Path) -> None:
    agent = Agent.register(
        stand_in.url, "t", name="phone", home=tmp_path, model=torch.nn.Linear(4, 3), data=samples(),
        cache=BlobCache(tmp_path / "cache"),
    )  # fmt: skip
    agent.join("tiny")
    assert {result.outcome for result in agent.run().rounds} == {"declined"}
    assert "differ in" in stand_in.declined[0][1]


def test_a_device_without_a_model_declines_to_train(stand_in: StandIn, tmp_path: Path) -> None:
    agent = Agent.register(stand_in.url, "t", name="meter", home=tmp_path, samples=5, cache=BlobCache(tmp_path / "c"))
    agent.join("tiny")
    agent.run()
    assert stand_in.enrolled == {"dev_1": 5}
    assert "started without one" in stand_in.declined[0][1]


def test_uniform_privacy_clips_noises_and_charges_before_sending(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.work = {"privacy": "uniform", "noise_multiplier": 2.0}
    stand_in.training = {"epochs": 5, "learning_rate": 1.0, "clip_norm": 0.5}
    stand_in.rounds = 1
    agent = agent_at(stand_in, tmp_path, simulated_noise=lambda: SeededStream(5), limit=Limit(50.0, 1e-5))
    agent.join("tiny")
    agent.run()
    flat = np.concatenate([value.ravel() for value in load(stand_in.updates[1, "dev_1"][0]).values()])
    assert 0.5 < float(flat.std()) < 1.5  # 67 draws of deviation 2.0 · 0.5 and a change of norm ≤ 0.5
    [entry] = agent.home.ledger().history()
    assert (entry.charge.purpose, entry.charge.unit, entry.charge.rho) == ("update", "device", 1 / (2 * 2.0**2))
    assert stand_in.reports[1, "dev_1"]["privacy"] == [
        {"mechanism": "gaussian", "parameter": 2.0, "unit": "device", "adjacency": "left-out"} | CLAIMED_ONCE
    ]


def test_work_beyond_the_devices_own_limit_is_declined_and_nothing_is_sent(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.work = {"privacy": "uniform", "noise_multiplier": 1.0}
    summary = run(stand_in, tmp_path, limit=Limit(6.5, 1e-5, "device"))
    outcomes = [result.outcome for result in summary.rounds]
    assert outcomes == ["accepted", "declined", "declined"]
    assert stand_in.declined[0][1] == "this round would cross the privacy limit of the device's owner"
    assert "ε = 4.377" in summary.rounds[1].note  # a note to the owner
    assert list(stand_in.updates) == [(1, "dev_1")]


def test_noise_promised_but_not_planned_is_declined(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.work = {"privacy": "uniform", "noise_multiplier": 0.0}
    run(stand_in, tmp_path)
    assert stand_in.updates == {}


def test_an_unknown_way_of_working_is_declined(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.work = {"topology": "ring"}
    run(stand_in, tmp_path)
    assert "upgrade the package" in stand_in.declined[0][1]


def test_heartbeats_go_on_while_training_takes_long(stand_in: StandIn, tmp_path: Path) -> None:
    class Slow:
        def prepare(self, context: RoundContext) -> Delivery:
            begun = stand_in.beats
            for _ in range(1000):
                if stand_in.beats >= begun + 3:
                    break
                threading.Event().wait(0.005)
            assert stand_in.beats >= begun + 3
            return Delivery(context.model(), 1.0)

    stand_in.rounds = 1
    run(stand_in, tmp_path, choose=lambda work: Slow(), heartbeat_seconds=0.02)


def test_one_device_runs_once_at_a_time(stand_in: StandIn, tmp_path: Path) -> None:
    agent, other = agent_at(stand_in, tmp_path), agent_at(stand_in, tmp_path)
    other.join("tiny")
    agent.close()
    with agent._only_one(), pytest.raises(BadHome, match="another running agent"):
        other.run()


def test_ctrl_c_ends_a_run_without_a_traceback(stand_in: StandIn, tmp_path: Path) -> None:
    def interrupt(work: WorkItem) -> Star:
        raise KeyboardInterrupt

    summary = run(stand_in, tmp_path, choose=interrupt)
    assert summary.interrupted
    assert stand_in.declined == []


def test_stop_from_another_thread_ends_a_run(stand_in: StandIn, tmp_path: Path) -> None:
    agents: list[Agent] = []
    agents.append(agent_at(stand_in, tmp_path, on_round=lambda result: agents[0].stop()))
    agents[0].join("tiny")
    assert agents[0].run().interrupted


def test_running_before_joining_says_what_to_do(stand_in: StandIn, tmp_path: Path) -> None:
    with pytest.raises(CoterieError, match="call join"):
        agent_at(stand_in, tmp_path).run()


def test_paused_device_declines_and_sends_nothing_until_resumed(stand_in: StandIn, tmp_path: Path) -> None:
    def resume_after_first(result: RoundResult) -> None:
        if result.round == 1:
            agent.home.save_private_settings({"paused": False, "costs": {"quadratic": 1.0}})

    agent = agent_at(stand_in, tmp_path / "phone", on_round=resume_after_first)
    agent.home.save_private_settings({"paused": True, "costs": {"quadratic": 1.0}})
    agent.join("tiny")
    outcomes = [result.outcome for result in agent.run().rounds]
    assert outcomes == ["declined", "accepted", "accepted"]
    assert stand_in.declined == [(1, "its owner has paused this device")]
    assert [number for number, _ in stand_in.updates] == [2, 3]
