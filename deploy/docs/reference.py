"""Generate the reference pages from OpenAPI, protobuf files, the command and the SDK's docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

SDK = """# Python SDK

What a device, a publisher or an admin calls from Python. `pip install` of `clients/coterie` is enough.

::: coterie.agent.agent.Agent

::: coterie.client.Platform

## Records

Every answer is one of these; unknown fields of a newer platform are ignored, `.to_dict()` gives it back as JSON.

::: coterie.records
    options:
      show_root_heading: false
      heading_level: 3
      inherited_members: false
"""


def pages(root: Path) -> dict[str, str]:
    """Return each reference page by its name on the site."""
    return {
        "reference/rest.md": "\n".join(rest()),
        "reference/commands.md": "\n".join(commands()),
        "reference/messages.md": "\n".join(messages(root)),
        "reference/parameters.md": "\n".join(parameters()),
        "reference/sdk.md": SDK,
    }


def rest() -> Iterator[str]:
    """Describe every route with its request and response."""
    from services.gateway.app import build
    from services.gateway.settings import GatewaySettings

    document = build(GatewaySettings()).openapi()
    yield f"# REST\n\n{document['info']['description']}\n"
    yield "The same as OpenAPI: `GET /openapi.json`; to try out: `/docs` on a running gateway.\n"
    families: dict[str, list[tuple[str, str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            families.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    for family, routes in families.items():
        yield f"## {family}\n"
        for method, path, operation in routes:
            yield f"### `{method} {path}`\n\n**{operation['summary']}.** {operation.get('description', '')}\n"
            yield from _table(("parameter", "in", "meaning"), _parameters(operation))
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if body:
                yield f"Body: {_kind(body)}\n"
            given = [
                _kind(schema)
                for status, answer in operation["responses"].items()
                if status.startswith("2")
                and (schema := answer.get("content", {}).get("application/json", {}).get("schema"))
            ]
            if given:
                yield f"Answer: {', '.join(given)}\n"
    yield "## Objects\n"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"### {name}\n\n{schema.get('description', '')}\n"
        needed = set(schema.get("required", ()))
        yield from _table(
            ("field", "type", "meaning"),
            (
                (f"`{field}`{' (needed)' if field in needed else ''}", _kind(kind), _meaning(kind))
                for field, kind in schema.get("properties", {}).items()
            ),
        )


def _parameters(operation: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for item in operation.get("parameters", ()):
        yield f"`{item['name']}`{' (needed)' if item.get('required') else ''}", item["in"], item.get("description", "")


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower().replace('[', '').replace(']', '')})"
    if "anyOf" in schema:
        return " or ".join(_kind(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))


def _meaning(schema: Mapping[str, Any]) -> str:
    limits = [f"{name} {schema[name]}" for name in ("minimum", "maximum", "maxLength", "pattern") if name in schema]
    return " ".join([schema.get("description", ""), f"({', '.join(limits)})" if limits else ""]).strip()


def _table(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    lines = ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    if lines:
        yield "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns) + "\n" + "\n".join(lines) + "\n"


def commands() -> Iterator[str]:
    """Describe every command with its options and examples."""
    from coterie_cli.main import app

    yield "# Command line\n\nEvery command takes `--help`; those that print results take `--json`.\n"
    yield from _command(typer.main.get_command(app), "coterie", 2)


def _command(command: Any, name: str, level: int) -> Iterator[str]:
    if name != "coterie":
        yield f"{'#' * level} `{name}`\n"
    yield f"{_plain(command.help or '')}\n"
    options = [item for item in command.params if item.name != "help" and not getattr(item, "hidden", False)]
    yield from _table(("argument or option", "default", "meaning"), (_option(item) for item in options))
    if command.epilog and not hasattr(command, "commands"):
        examples = _plain(command.epilog).replace("Examples", "").replace("Example", "").strip()
        yield "```\n" + re.sub(r"\n\s*\n", "\n", examples) + "\n```\n"
    for sub in getattr(command, "commands", {}).values():
        yield from _command(sub, f"{name} {sub.name}", min(level + (name != "coterie"), 4))


def _option(item: Any) -> tuple[str, str, str]:
    is_option = item.param_type_name == "option"
    names = ", ".join(f"`{name}`" for name in item.opts) if is_option else f"`{item.name.upper()}`"
    nothing = item.required or item.default in (None, "", False, []) or callable(item.default)
    default = "" if nothing or str(item.default).startswith("/") else str(item.default)
    return names, default, _plain(getattr(item, "help", "") or "")


def _plain(text: str) -> str:
    return re.sub(r"\[/?[a-z ]*\]", "", text).replace("<", "&lt;")


_BLOCK = re.compile(r"^(service|message|enum) (\w+)")
_ITEM = re.compile(r"^\s+(rpc \w+.*?;|rpc .*|(?:repeated |optional )?(?:map<[^>]+>|[\w.]+) \w+ = \d+;|[A-Z_]+ = \d+;)")


def parameters() -> Iterator[str]:
    """Describe every task parameter with its values, default and meaning."""
    from coterie.parameters.registry import groups

    yield "# Task parameters\n"
    yield "A task's `parameters` hold one section for each axis; `coterie task parameters` prints the same.\n"
    for group in groups():
        yield f"## {group.label()}\n\n{inspect.getdoc(group)}\n"
        rows = (
            (
                f"`{group.section}.{name}`",
                item.allowed.replace("|", "\\|"),
                item.default_text,
                f"{item.help} Unit: {item.unit}." if item.unit else item.help,
            )
            for name, item in group.parameters().items()
        )
        yield from _table(("parameter", "values", "default", "meaning"), rows)


def messages(root: Path) -> Iterator[str]:
    """Show the services' protobuf files with their comments."""
    yield "# Messages between services\n\nInternal: services are upgraded together. Devices speak REST.\n"
    for path in sorted((root / "protos").rglob("*.proto")):
        yield f"## {path.stem}\n\n`{path.relative_to(root)}`\n"
        yield from _proto(path.read_text())


def _proto(text: str) -> Iterator[str]:
    comment: list[str] = []
    rows: list[tuple[str, str]] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("//"):
            comment.append(stripped.removeprefix("//").strip())
            continue
        if block := _BLOCK.match(line):
            yield from _table(("", "meaning"), iter(rows))
            rows = []
            yield f"### {block[2]}\n\n{block[1]}. {' '.join(comment)}\n"
        elif _ITEM.match(line):
            rows.append((f"`{stripped.split(' = ')[0].rstrip(';{ ')}`", " ".join(comment)))
        comment = []
    yield from _table(("", "meaning"), iter(rows))
