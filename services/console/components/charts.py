"""Charts with NiceGUI's ECharts: one style, legible in light and dark, each with a text alternative.

Text from the platform is always a value of the options, never a key: NiceGUI runs keys that start with a colon as code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

SERIES_LIGHT = (
    "#0f6b6b",
    "#c2571a",
    "#3b5fc0",
    "#8a5300",
    "#a63d7f",
    "#4d7c0f",
    "#6d4bb8",
    "#0e7490",
    "#b3261e",
    "#64748b",
)
SERIES_DARK = (
    "#5cc5c0",
    "#f2a365",
    "#8bacf5",
    "#e3c567",
    "#ef8fc4",
    "#a3d15a",
    "#b9a2f2",
    "#67d4ee",
    "#ff9a90",
    "#a9b6c4",
)


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of a chart."""

    ink: str
    faint: str
    line: str
    surface: str
    good: str
    bad: str
    warn: str
    series: tuple[str, ...]

    def of(self, number: int) -> str:
        """Return the colour of a group; colours repeat after ten."""
        return self.series[number % len(self.series)]


LIGHT = Palette(
    ink="#17212b",
    faint="#5a6876",
    line="#dce1e7",
    surface="#ffffff",
    good="#14713b",
    bad="#b3261e",
    warn="#8a5300",
    series=SERIES_LIGHT,
)
DARK = Palette(
    ink="#e8edf1",
    faint="#9fadb9",
    line="#303b45",
    surface="#181f25",
    good="#74d49b",
    bad="#ff9a90",
    warn="#f0b35a",
    series=SERIES_DARK,
)


def palette(dark: bool) -> Palette:
    """Return the colours for light or dark."""
    return DARK if dark else LIGHT


def base(colours: Palette) -> dict[str, Any]:
    """Return the options that all charts share."""
    return {
        "animation": False,
        "color": list(colours.series),
        "textStyle": {"fontFamily": "Roboto, system-ui, sans-serif", "color": colours.ink},
        "tooltip": {
            "backgroundColor": colours.surface,
            "borderColor": colours.line,
            "textStyle": {"color": colours.ink, "fontSize": 13},
            "confine": True,
        },
    }


def axis(colours: Palette, name: str = "", **more: Any) -> dict[str, Any]:
    """Return the options of an axis, named with its unit."""
    return {
        "name": name,
        "nameLocation": "middle",
        "nameGap": 32,
        "nameTextStyle": {"color": colours.faint},
        "axisLabel": {"color": colours.faint, "hideOverlap": True},
        "axisLine": {"lineStyle": {"color": colours.line}},
        "splitLine": {"lineStyle": {"color": colours.line}},
        **more,
    }


def lines(
    colours: Palette,
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    *,
    across: str,
    up: str = "",
    time: bool = False,
    steps: bool = False,
) -> dict[str, Any]:
    """Return a line chart of (name, points) pairs; `across` and `up` name the axes with their units."""
    single = len(series) == 1
    longest = max((len(points) for _, points in series), default=0)
    return base(colours) | {
        "grid": {"left": 64, "right": 20, "top": 16 if single else 44, "bottom": 48},
        "legend": {"show": not single, "top": 0, "type": "scroll", "textStyle": {"color": colours.ink}},
        "tooltip": base(colours)["tooltip"] | {"trigger": "axis", "valueFormatter": None},
        "xAxis": axis(colours, across, type="time" if time else "value", minInterval=0 if time else 1, min="dataMin"),
        "yAxis": axis(colours, up, type="value", scale=True, nameGap=50),
        "series": [
            {
                "type": "line",
                "name": name,
                "data": [list(point) for point in points],
                "showSymbol": longest <= 40,
                "symbolSize": 6,
                "step": "end" if steps else False,
                "lineStyle": {"width": 2},
            }
            for name, points in series
        ],
    }


def bars(
    colours: Palette, names: Sequence[str], values: Sequence[float], *, unit: str, tones: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return a chart of horizontal bars, the first on top."""
    data: list[Any] = [
        {"value": value, "itemStyle": {"color": tones[number] if tones else colours.of(0)}}
        for number, value in enumerate(values)
    ]
    return base(colours) | {
        "grid": {"left": 8, "right": 24, "top": 8, "bottom": 44, "containLabel": True},
        "tooltip": base(colours)["tooltip"] | {"trigger": "item"},
        "xAxis": axis(colours, unit, type="value"),
        "yAxis": axis(
            colours,
            type="category",
            data=list(names),
            inverse=True,
            axisLabel={"color": colours.ink, "width": 150, "overflow": "truncate"},
        ),
        "series": [{"type": "bar", "data": data, "barMaxWidth": 18}],
    }


def chart(options: dict[str, Any], label: str, *, height: int = 300, **more: Any) -> ui.echart:
    """Draw a chart; `label` describes it for screen readers."""
    made = ui.echart(options, **more).classes("c-chart").style(f"height: {height}px")
    made.props["role"] = "img"
    made.props["aria-label"] = label
    return made
