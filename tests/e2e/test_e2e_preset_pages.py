"""The examples of the preset pages run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.real_platform import ROOT, RealPlatform


def run_example(page: str, platform: RealPlatform, folder: Path) -> dict[str, Any]:
    text = (ROOT / "docs/howto/presets" / page).read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"url": platform.processes.url, "admin_key": platform.processes.admin_key()}
    exec(compile(code, page, "exec"), names | {"folder": folder}, result := dict[str, Any]())
    return result


def test_the_market_page_s_example_pays(
    shared_platform: RealPlatform, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_example("market.md", shared_platform, tmp_path)
    assert len(result["payments"]) == 2
    assert "zCDP budget" in capsys.readouterr().out


def test_the_survey_page_s_example_finds_an_estimate(shared_platform: RealPlatform, tmp_path: Path) -> None:
    result = run_example("survey.md", shared_platform, tmp_path)
    assert result["result"]["answers"] == 1
    assert abs(result["result"]["estimate"] - 21.5) < 6 * result["result"]["standard_error"]
