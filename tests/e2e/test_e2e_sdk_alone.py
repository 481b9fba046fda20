"""The device SDK, installed alone in an empty environment, works against a platform."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.client import Platform
from coterie.learning.training import model_bytes
from coterie.privacy.question_text import Question
from coterie.samples import digits_model
from coterie_cli.question_task import create_survey, survey_result
from tests.e2e.empty_environment import ROOT, Environment, build, install, wheel_of
from tests.e2e.real_platform import PATIENT, RealPlatform, real_platform

DEVICES = 3
ESCROW = 20_000_000
ABSENT = ("torch", "sklearn", "typer", "rich", "services", "coterie_cli", "coterie_api", "grpc", "pip")
NEED_TORCH = (
    "coterie.learning.adapters",
    "coterie.learning.batches",
    "coterie.learning.torch_learner",
    "coterie.learning.training",
    "coterie.privacy.clipping_layers",
)
IMPORT_EVERYTHING = """
import importlib, importlib.util, json, pkgutil, sys
import coterie
absent = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
failed = []
for module in pkgutil.walk_packages(coterie.__path__, "coterie."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        failed.append([module.name, error.name])
print(json.dumps({"where": coterie.__file__, "absent": absent, "failed": failed}))
"""
ANSWER = """
import sys
from coterie import Agent
url, token, task, home = sys.argv[1:]
device = Agent.register(url, token, name="kitchen", home=home)
device.home.save_private_settings({"answer": 21.5})
device.join(task)
print(device.run())
print(f"{device.home.ledger().spent().epsilon:.1f}")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_of(build(tmp_path_factory.mktemp("dist")), "coterie")


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The SDK without any extra."""
    yield from installed(wheel, tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def with_torch(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The SDK of a device that trains, with scikit-learn for the example's data."""
    yield from installed(wheel, tmp_path_factory.mktemp("torch"), "[torch,demo]")


def installed(wheel: Path, folder: Path, extras: str = "") -> Iterator[Environment]:
    yield install(folder, wheel, extras)
    shutil.rmtree(folder)  # hundreds of megabytes, which pytest would keep for three more runs


def test_all_but_training_modules_import_from_declared_dependencies(bare: Environment, tmp_path: Path) -> None:
    result = json.loads(bare.run("-c", IMPORT_EVERYTHING, *ABSENT, cwd=tmp_path))
    assert Path(result["where"]).is_relative_to(bare.folder)
    assert result["absent"] == list(ABSENT)
    assert result["failed"] == [[name, "torch"] for name in NEED_TORCH]


def test_a_device_without_torch_answers_a_survey(
    bare: Environment, shared_platform: RealPlatform, tmp_path: Path
) -> None:
    admin, url = shared_platform.admin, shared_platform.processes.url
    token = admin.issue_token(admin.create_owner(f"owner {secrets.token_hex(4)}").id).token
    publisher = admin.create_key("publisher", f"publisher {secrets.token_hex(4)}")
    admin.deposit(publisher.principal.subject, ESCROW, key="opening")
    question = Question("How warm is it, in °C?", 15, 30)
    with Platform(url, publisher.api_key, backoff=PATIENT) as platform:
        task = create_survey(platform, "kitchens", question, escrow_microcredits=ESCROW, auto_start=True)
    outputs = bare.run("-c", ANSWER, url, token, task.id, str(tmp_path / "kitchen"), cwd=tmp_path).splitlines()
    assert outputs[0] == f"1 of 1 rounds delivered; {task.id} finished"
    assert 0.0 < float(outputs[1]) <= 8.0
    assert survey_result(admin, task.id)["answers"] == 1.0


def test_example_device_learns_where_only_sdk_torch_and_scikit_learn_are(
    with_torch: Environment, tmp_path: Path
) -> None:
    """On a separate platform: the example asks for its task by name."""
    with real_platform(tmp_path / "platform") as platform:
        learn(with_torch, platform, tmp_path)


def learn(with_torch: Environment, platform: RealPlatform, folder: Path) -> None:
    admin = platform.admin
    token = admin.issue_token(admin.create_owner(f"owner {secrets.token_hex(4)}").id, uses=DEVICES).token
    task = admin.create_task(
        name="digits", preset="fedavg", model_digests=[admin.upload_model(model_bytes(digits_model()))], rounds=5,
        min_devices=DEVICES, auto_start=True, quorum=1.0, training={"epochs": 2, "learning_rate": 0.1},
    ).id  # fmt: skip
    variables = with_torch.variables(COTERIE_URL=platform.processes.url, TOKEN=token)
    script = str(ROOT / "examples" / "device.py")
    phones = [
        subprocess.Popen(
            with_torch.command(script, str(number)), cwd=folder, env=variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for number in range(1, DEVICES + 1)
    ]  # fmt: skip
    try:
        outputs = [phone.communicate(timeout=300)[0] for phone in phones]
    finally:
        for phone in phones:
            phone.kill()
    assert [text.splitlines()[-1] for text in outputs] == [f"5 of 5 rounds delivered; {task} finished"] * DEVICES
    *_, last = admin.rounds(task)
    assert last.metrics["accuracy"] > 0.8
