"""Pages: what may be asked for, and where the next one begins."""

from __future__ import annotations

import pytest

from services.kit.rpc.paging import NUMBER, BadCursor, BadPage, Page, next_cursor, read_page
from services.kit.runtime import ids


def test_nothing_asked_for_is_the_usual_page_from_the_start() -> None:
    assert read_page(0, "", NUMBER) == Page(100, "")
    assert read_page(0, "", NUMBER, usual=20) == Page(20, "")
    assert read_page(500, "17", NUMBER) == Page(500, "17")


@pytest.mark.parametrize("limit", [-1, 501])
def test_a_page_that_cannot_be_is_refused_with_the_bounds(limit: int) -> None:
    with pytest.raises(BadPage, match=f"from 1 to 500 .*not {limit}"):
        read_page(limit, "", NUMBER)


@pytest.mark.parametrize("cursor", ["-1", "1.5", "x", "9" * 19, "1\n", "' OR 1=1"])
def test_a_cursor_no_list_gave_out_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor, match="use next_cursor of the previous page"):
        read_page(10, cursor, NUMBER)


def test_fresh_ids_are_cursors_of_their_own_lists_alone() -> None:
    made = ids.new_id("dev")
    assert read_page(1, made, ids.form("dev")).cursor == made
    for wrong in (made + "x", made[:-1], made.replace("dev", "own"), made.upper()):
        with pytest.raises(BadCursor):
            read_page(1, wrong, ids.form("dev"))


def test_a_page_that_is_not_full_is_the_last() -> None:
    assert next_cursor([1, 2, 3], 3, str) == "3"
    assert next_cursor([1, 2], 3, str) == ""
    assert next_cursor([], 3, str) == ""
