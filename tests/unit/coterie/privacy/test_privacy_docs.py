"""The examples of docs/explanation/privacy.md and of the docstrings run as printed."""

import doctest
from pathlib import Path

from coterie.privacy import accounting, gaussian

GUIDE = Path(__file__).parents[4] / "docs" / "explanation" / "privacy.md"


def test_the_guides_examples_run_as_printed() -> None:
    result = doctest.testfile(str(GUIDE), module_relative=False)
    assert result.attempted >= 20
    assert result.failed == 0


def test_docstring_examples_run_as_printed() -> None:
    for module in (accounting, gaussian):
        result = doctest.testmod(module)
        assert result.attempted > 0
        assert result.failed == 0
