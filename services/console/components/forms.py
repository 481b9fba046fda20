"""Form controls, built from the declarations of fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.validation_element import ValidationElement

from services.console.domain.fields import Field
from services.console.domain.presets import fault_of


def control(field: Field, values: dict[str, Any], contract: Mapping[str, Any], changed: Callable[[], Any]) -> Any:
    """Create the control of a field; it writes input to `values` and shows errors at once."""
    value = values.setdefault(field.key, field.default)

    def check(given: Any) -> str | None:
        return fault_of(field, given, contract)

    made: ValidationElement[Any]
    if field.kind == "choice":
        made = ui.select(dict(field.options or {}), value=value, label=field.label, validation=check)
    elif field.kind == "text":
        made = ui.input(field.label, value=value, validation=check)
    else:
        made = ui.number(field.label, value=value, format="%.15g", validation=check)
        if field.kind == "integer":
            made.props("step=1 inputmode=numeric")
        else:
            made.props("step=any inputmode=decimal")
    made.props("outlined dense debounce=250").classes("c-field")
    if field.hint:
        made.props["hint"] = field.hint

    def store() -> None:
        values[field.key] = made.value
        changed()

    made.on_value_change(store)
    return made
