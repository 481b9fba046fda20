"""`coterie trust`: trust between devices, with explanations."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from coterie.client import Platform
from coterie.errors import NotAllowed, Refused
from coterie.protocol.sanitise import sanitise
from coterie.records import Device, InteractionState, Loss, TrustExplanation, TrustGraph
from coterie_cli.commands import trust_friends, trust_import
from coterie_cli.commands.payments import moment
from coterie_cli.console import AsJson, Key, Mistake, Url, connect, err, out, show, table, when

BARS = "▁▂▃▄▅▆▇█"
NO_TRUST = "·"
HISTORY_ROWS = 12
GRAPH_SECONDS = 120.0

app = typer.Typer(help="Show and explain trust between devices; import social graphs.", no_args_is_help=True)
app.command("import", epilog=trust_import.IMPORT_EPILOG)(trust_import.import_file)
app.command("befriend", epilog=trust_friends.BEFRIEND_EPILOG)(trust_friends.befriend)
app.command("unfriend", epilog=trust_friends.UNFRIEND_EPILOG)(trust_friends.unfriend)
app.command("friends", epilog=trust_friends.FRIENDS_EPILOG)(trust_friends.friends)

DeviceA = Annotated[str, typer.Argument(metavar="DEVICE", help="A device: its id or, for admins, its name.")]
DeviceB = Annotated[str, typer.Argument(metavar="OTHER", help="The other device.")]
At = Annotated[str, typer.Option(help="At this day or moment, such as 2026-01-31T12:00; by default now.")]


class GraphFormat(StrEnum):
    """How a graph is written."""

    TABLE = "table"
    JSON = "json"
    GRAPHML = "graphml"
    NODE_LINK = "node-link"


class Names:
    """Looks up devices by name and names by id, and caches them."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._names: dict[str, str] = {}

    def ids(self, wanted: Sequence[str]) -> list[str]:
        """Return the ids of devices given by id or name; only admins may look up names."""
        missing = {text for text in wanted if not text.startswith("dev_")}
        result: dict[str, list[str]] = {text: [] for text in missing}
        for device in self._all() if missing else ():
            if device.name in missing:
                result[device.name].append(device.id)
                self._names[device.id] = device.name
        for text, ids in result.items():
            if not ids:
                raise Mistake(f"no device is called {text!r}; `coterie device list` shows those there are")
            if len(ids) > 1:
                raise Mistake(f"{len(ids)} devices are called {text!r}; give one of the ids {', '.join(ids[:5])}")
        return [result[text][0] if text in missing else text for text in wanted]

    def of(self, device_id: str) -> str:
        """Return a device's name, or its id where the caller may not see the name."""
        if device_id not in self._names:
            try:
                self._names[device_id] = self._platform.device(device_id).name or device_id
            except Refused:
                self._names[device_id] = device_id
        return self._names[device_id]

    def learn(self, devices: Iterable[Device]) -> None:
        """Cache names from a response."""
        self._names |= {device.id: device.name or device.id for device in devices}

    def _all(self) -> Iterable[Device]:
        try:
            yield from self._platform.devices()
        except NotAllowed as error:
            raise Mistake("only admins look devices up by name; give ids (dev_…)") from error


@app.command("show", epilog="[bold]Example[/]  coterie trust show ada-phone grace-laptop")
def show_trust(
    device: DeviceA, other: DeviceB, at: At = "", url: Url = "", key: Key = "", as_json: AsJson = False
) -> None:
    """Show the trust between two devices: direct, indirect and combined."""
    with connect(url, key) as platform:
        result, names = _explained(platform, device, other, at)
        title = f"{names.of(result.device_a)} and {names.of(result.device_b)}"
    rows = [
        ["direct", _share(result.direct)],
        ["indirect", _share(result.indirect)],
        ["combined", _share(result.trust)],
    ]
    retained = ("device_a", "device_b", "at", "direct", "indirect", "trust")
    show({name: getattr(result, name) for name in retained}, as_json, lambda: table(title, ["trust", "0 to 1"], rows))


@app.command(
    "explain",
    epilog="[bold]Examples[/]  coterie trust explain ada-phone grace-laptop\n\n"
    "coterie trust explain dev_01jd… dev_01je… --at 2026-01-31 --json",
)
def explain(
    device: DeviceA, other: DeviceB, at: At = "", url: Url = "", key: Key = "", as_json: AsJson = False
) -> None:
    """Explain the trust between two devices, with the path and its hops."""
    with connect(url, key) as platform:
        explanation, names = _explained(platform, device, other, at)
        hops = [[names.of(hop.from_device), names.of(hop.to_device), _share(hop.direct)] for hop in explanation.path]
    ties = [[r.kind, _share(r.strength), when(r.since), r.because] for r in explanation.relations]

    def render() -> RenderableType:
        parts: list[RenderableType] = [explanation.text]
        if hops:
            parts.append(table("\nthe path", ["from", "to", "direct trust"], hops))
        if ties:
            parts.append(table("\nrelations", ["kind", "strength", "since", "because"], ties))
        return Group(*parts)

    show(explanation, as_json, render)


@app.command(
    "interactions",
    epilog="[bold]Examples[/]  coterie trust interactions ada-phone\n\n"
    "coterie trust interactions ada-phone grace-laptop --unconfirmed --json",
)
def interactions(
    device: DeviceA,
    other: Annotated[str, typer.Argument(metavar="[OTHER]", help="Only with this device.")] = "",
    unconfirmed: Annotated[bool, typer.Option(help="Only good ones that lack the other device's report.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most this many.")] = 50,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """List a device's interactions, newest first, and whether each counts; good ones need both devices' reports."""
    with connect(url, key) as platform:
        names = Names(platform)
        ids = names.ids([device, other] if other else [device])
        every = platform.interactions(*ids)
        wanted = (one for one in every if not unconfirmed or one.state is InteractionState.UNCONFIRMED)
        result = list(islice(wanted, limit))
        rows = [
            [
                when(one.at),
                names.of(one.device_b if one.device_a == ids[0] else one.device_a),
                one.kind or "interaction",
                "well" if one.positive else "badly",
                f"{one.duration_seconds:g} s",
                one.state,
                names.of(one.reporter) if one.reporter.startswith("dev_") else one.reporter,
            ]
            for one in result
        ]
    columns = ["when", "with", "what", "went", "for", "counts", "reported by"]
    show([one.to_dict() for one in result], as_json, lambda: table(f"what {device} did", columns, rows))


@app.command("peers", epilog="[bold]Example[/]  coterie trust peers ada-phone --limit 5")
def peers(
    device: DeviceA,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most this many.")] = 20,
    at: At = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """List the devices a device trusts most."""
    with connect(url, key) as platform:
        names = Names(platform)
        (device_id,) = names.ids([device])
        result = platform.trust_peers(device_id, limit=limit, at=moment("--at", at))
        rows = [
            [names.of(p.device_id), _share(p.trust), _share(p.direct), _share(p.indirect)]
            for p in (() if as_json else result)
        ]
    show(result, as_json, lambda: table("", ["device", "trust", "direct", "indirect"], rows))


@app.command(
    "graph",
    epilog="[bold]Examples[/]  coterie trust graph --task digits\n\n"
    "coterie trust graph --owner own_01jd… --format graphml --out ties.graphml\n\n"
    "coterie trust graph --least 0.5 --format node-link | jq '.links | length'",
)
def graph(
    task: Annotated[str, typer.Option(help="Of the devices in this task, by id or name.")] = "",
    owner: Annotated[str, typer.Option(help="Of this owner's devices and their peers.")] = "",
    least: Annotated[float, typer.Option(min=0, max=1, help="Only ties with this much direct trust.")] = 0.0,
    at: At = "",
    format: Annotated[
        GraphFormat | None, typer.Option("--format", help="By default a table, or JSON with --out or --json.")
    ] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write to this file.")] = None,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show or export the trust graph of a task, an owner or the whole platform; node-link is networkx's JSON form."""
    chosen = format or (GraphFormat.JSON if as_json or out_file is not None else GraphFormat.TABLE)
    if chosen is GraphFormat.TABLE and out_file is not None:
        raise Mistake("a table is for the screen; give --format json, graphml or node-link with --out")
    sent = GraphFormat.JSON if chosen is GraphFormat.TABLE else chosen
    with connect(url, key) as platform:
        params = {"owner": owner, "least": least, "at": moment("--at", at), "format": sent.value}
        if task:
            params["task"] = platform.find_task(task).id
        content: bytes = platform.request(
            "GET",
            "/v1/trust/graph",
            params=params,
            wait_seconds=GRAPH_SECONDS,
            consume=lambda response: response.read(),
        )
        names = Names(platform)
        if chosen is GraphFormat.TABLE:
            _print_graph(TrustGraph.from_json(json.loads(content)), names)
        elif out_file is not None:
            out_file.write_bytes(content)
            err.print(f"wrote {out_file}")
        else:
            text = content.decode()
            typer.echo(sanitise(text) if sys.stdout.isatty() else text)


@app.command(
    "history",
    epilog="[bold]Example[/]  coterie trust history ada-phone grace-laptop --since 2026-01-01 --points 60",
)
def history(
    device: DeviceA,
    other: DeviceB,
    since: Annotated[str, typer.Option(help="From this day or moment; by default the first interaction.")] = "",
    until: Annotated[str, typer.Option(help="To this day or moment; by default now.")] = "",
    points: Annotated[int, typer.Option(min=2, max=1000, help="How many moments.")] = 50,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show the history of the direct trust of two devices, as a line of bars and a short table."""
    with connect(url, key) as platform:
        a, b = Names(platform).ids([device, other])
        start, end = moment("--since", since), moment("--until", until)
        result = platform.trust_history(a, b, since=start, until=end, points=points)
    step = max(1, -(-len(result) // HISTORY_ROWS))
    rows = [[when(p.at), _share(p.direct), p.count] for p in [*result[:-1:step], *result[-1:]]]
    bars = sparkline([p.direct for p in result])
    show(result, as_json, lambda: table(bars or "they have not interacted", ["when", "direct", "interactions"], rows))


@app.command(
    "losses",
    epilog="[bold]Examples[/]  coterie trust losses\n\ncoterie trust losses --device ada-phone --since 2026-01-01",
)
def losses(
    device: Annotated[str, typer.Option(help="Only ties of this device, by id or name.")] = "",
    since: Annotated[str, typer.Option(help="Since this day or moment; by default 30 days ago.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most this many.")] = 20,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """List the pairs that lost most trust, with the interactions that caused it."""
    with connect(url, key) as platform:
        names = Names(platform)
        (device_id,) = names.ids([device]) if device else ("",)
        result = platform.trust_losses(device=device_id, since=moment("--since", since), limit=limit)
        rows = [
            [names.of(x.device_a), names.of(x.device_b), _share(x.before), _share(x.after), _causes(x)]
            for x in (() if as_json else result)
        ]
    show(result, as_json, lambda: table("", ["device", "other", "before", "now", "because"], rows))


@app.command("relations", epilog="[bold]Example[/]  coterie trust relations ada-phone --limit 20")
def relations(
    device: DeviceA,
    limit: Annotated[int, typer.Option(min=0, help="At most this many; 0 = all.")] = 100,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """List a device's social relations, each with its reason."""
    with connect(url, key) as platform:
        names = Names(platform)
        (device_id,) = names.ids([device])
        result = list(islice(platform.relations(device_id), limit or None))
        rows = [
            [r.kind, names.of(r.b if r.a == device_id else r.a), _share(r.strength), r.because]
            for r in (() if as_json else result)
        ]
    show(result, as_json, lambda: table("", ["kind", "with", "strength", "because"], rows))


@app.command("derive", epilog="[bold]Example[/]  coterie trust derive")
def derive(url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """Derive relations again from profiles, meetings and common tasks."""
    with connect(url, key) as platform:
        counts = platform.derive_relations()
    show(counts, as_json, lambda: table("", ["kind", "relations"], sorted(counts.items())))


def sparkline(values: Sequence[float]) -> str:
    """Draw trust in [0, 1] as a line of bars, with a dot for none."""
    return "".join(BARS[min(len(BARS) - 1, int(v * len(BARS)))] if v > 0 else NO_TRUST for v in values)


def _explained(platform: Platform, device: str, other: str, at: str) -> tuple[TrustExplanation, Names]:
    names = Names(platform)
    a, b = names.ids([device, other])
    return platform.explain_trust(a, b, at=moment("--at", at)), names


def _print_graph(graph: TrustGraph, names: Names) -> None:
    names.learn(graph.devices)
    ties = sorted(graph.ties, key=lambda tie: -tie.direct)
    rows = [[names.of(t.device_a), names.of(t.device_b), _share(t.direct), ", ".join(t.relations)] for t in ties]
    title = f"{len(graph.devices)} devices, {len(ties)} ties"
    out.print(table(title, ["device", "other", "direct trust", "relations"], rows))


def _causes(loss: Loss) -> str:
    shown = [f"{act.kind or 'bad'} {when(act.at)} {act.note}".strip() for act in loss.because[:3]]
    more = len(loss.because) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "") or "time alone"


def _share(value: float) -> str:
    return f"{value:.3f}"
