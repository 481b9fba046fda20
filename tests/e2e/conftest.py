"""One real platform for the tests that leave it standing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.real_platform import RealPlatform, real_platform


@pytest.fixture(scope="session")
def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlatform]:
    """A platform on SQLite, shared; tests use unique names."""
    with real_platform(tmp_path_factory.mktemp("platform")) as platform:
        yield platform
