"""The tests of this folder plan: the planners' loops are compiled before the first of them."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _compiled(compiled_planners: None) -> None: ...
