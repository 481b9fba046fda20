"""Tables with sorting, search, CSV export and a card layout on phones."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from services.console.components.blocks import STATES, button, empty

ROWS_PER_PAGE = 20
_TONES = {state: tone for state, (_, tone) in STATES.items()}
_ICONS = {state: icon for state, (icon, _) in STATES.items()}
LINK_CELL = """<q-td :props="props"><a v-if="props.row[props.col.name + '_href']"
 :href="props.row[props.col.name + '_href']">{{ props.value }}</a><span v-else>{{ props.value }}</span></q-td>"""
CHIP_CELL = """<q-td :props="props"><span :class="'c-chip ' + (props.row[props.col.name + '_tone'] || '')">
<q-icon :name="props.row[props.col.name + '_icon'] || 'help'" aria-hidden="true" />{{ props.value }}</span></q-td>"""
BAR_CELL = """<q-td :props="props"><div class="c-row" style="flex-wrap: nowrap"><div class="c-bar thin"
 style="width: 80px; flex: none"><i :style="{width: (100 * props.row[props.col.name + '_share']) + '%'}"></i></div>
<span>{{ props.value }}</span></div></q-td>"""
GRID_CELL = """<div class="q-table__grid-item col-12"><div class="c-card" style="gap: 6px; padding: 12px 14px">
<div v-for="col in props.cols" :key="col.name" class="c-row" style="flex-wrap: nowrap; align-items: baseline">
<span class="c-faint c-small" style="flex: 0 0 38%">{{ col.label }}</span>
<a v-if="props.row[col.name + '_href']" :href="props.row[col.name + '_href']" class="c-any">{{ col.value }}</a>
<span v-else-if="props.row[col.name + '_icon']" :class="'c-chip ' + (props.row[col.name + '_tone'] || '')">
<q-icon :name="props.row[col.name + '_icon']" aria-hidden="true" />{{ col.value }}</span>
<span v-else style="overflow-wrap: anywhere; min-width: 0">{{ col.value }}</span></div></div></div>"""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: key of the shown text in a row; `name_sort`, if present, is sorted and exported instead.
        label: heading.
        kind: "text", "number" (to the right), "link" (to the row's `name_href`), "chip" (a state) or "bar"
            (`name_share` beside the text).
    """

    name: str
    label: str
    kind: str = "text"
    wrap: bool = False

    def for_quasar(self) -> dict[str, Any]:
        """Return the column in Quasar's form."""
        align = "right" if self.kind == "number" else "left"
        key = self.name
        return {
            "name": key,
            "label": self.label,
            "field": key,
            "align": align,
            "sortable": True,
            "classes": "wrap" if self.wrap else "",
            ":sort": f"(a, b, x, y) => {{ const p = x['{key}_sort'] ?? a, q = y['{key}_sort'] ?? b; "
            "return p < q ? -1 : p > q ? 1 : 0; }",
        }


def state_cell(name: str, state: str, label: str = "") -> dict[str, str]:
    """Return the cells of a chip column."""
    return {name: label or state, f"{name}_tone": _TONES.get(state, ""), f"{name}_icon": _ICONS.get(state, "help")}


def table(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    *,
    key: str = "id",
    label: str,
    nothing: tuple[str, str, str],
    search: bool = False,
    csv_name: str = "",
    per_page: int = ROWS_PER_PAGE,
) -> ui.table | None:
    """Draw a table, or an empty state (`nothing`: icon, title, next step)."""
    if not rows:
        empty(*nothing)
        return None
    if search or csv_name:
        bar = ui.element("div").classes("c-row")
    made = ui.table(
        columns=[item.for_quasar() for item in columns],
        rows=[dict(row) for row in rows],
        row_key=key,
        pagination=per_page if len(rows) > per_page else None,
    )
    made.classes("c-table").props('flat dense :grid="Quasar.Screen.lt.sm"')
    made.props["aria-label"] = label
    for column in columns:
        template = {"link": LINK_CELL, "chip": CHIP_CELL, "bar": BAR_CELL}.get(column.kind)
        if template:
            made.add_slot(f"body-cell-{column.name}", template)
    made.add_slot("item", GRID_CELL)
    if search or csv_name:
        with bar:
            if search:
                box = ui.input(placeholder="Search").props('dense outlined clearable debounce=200 aria-label="Search"')
                with box.add_slot("prepend"):
                    ui.icon("search")
                box.bind_value_to(made, "filter")
            if csv_name:
                button("CSV", "download", lambda: ui.download.content(as_csv(columns, rows), csv_name))
    return made


def as_csv(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the rows as CSV; text that a spreadsheet would run as a formula starts with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([column.label for column in columns])
    for row in rows:
        writer.writerow(
            [_escape_formula(row.get(f"{column.name}_sort", row.get(column.name, ""))) for column in columns]
        )
    return out.getvalue().encode()


def _escape_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
