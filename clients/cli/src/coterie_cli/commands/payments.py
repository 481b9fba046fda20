"""`coterie payments`: payments, statements, deposits and verification of the ledger."""

from __future__ import annotations

import csv
import secrets
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.client import Platform
from coterie.records import Payment, Posting
from coterie_cli.console import FAILED, AsJson, Key, Mistake, Url, connect, show, table, when

MICRO_DIGITS = 6

app = typer.Typer(help="Payments, accounts and verification of the ledger.", no_args_is_help=True)
Since = Annotated[str, typer.Option(help="From this day or moment, such as 2026-01-31 or 2026-01-31T12:00.")]
Until = Annotated[str, typer.Option(help="Up to, not including, this day or moment.")]
Csv = Annotated[Path | None, typer.Option("--csv", help="Write CSV to this file instead; - is standard output.")]

_LIST_EPILOG = """[bold]Examples[/]

coterie payments list --task digits --limit 20\n
coterie payments list --owner own_01jd… --since 2026-01-01 --until 2026-02-01 --csv january.csv
"""


@app.command("list", epilog=_LIST_EPILOG)
def list_payments(
    task: Annotated[str, typer.Option(help="Only of this task, by id or name.")] = "",
    device: Annotated[str, typer.Option(help="Only to this device.")] = "",
    owner: Annotated[str, typer.Option(help="Only to this owner's devices.")] = "",
    since: Since = "",
    until: Until = "",
    limit: Annotated[int, typer.Option(min=0, help="At most this many; 0 = all.")] = 100,
    csv_file: Csv = None,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """List payments, newest first, each with its reason."""
    with connect(url, key) as platform:
        result = platform.payments(
            task=platform.find_task(task).id if task else "",
            device=device,
            owner=owner,
            since=moment("--since", since),
            until=moment("--until", until),
        )
        payments = list(islice(result, limit or None))
    if csv_file is not None:
        write_csv(csv_file, Payment, payments)
        return
    rows = [
        [p.number, f"{p.device_id}\n{p.task_id}", p.round, credits(p.amount_microcredits), when(p.at)[:10], p.because]
        for p in payments
    ]
    show(payments, as_json, lambda: table("", ["no", "device, task", "round", "credits", "when", "because"], rows))


@app.command(
    "statement",
    epilog="[bold]Examples[/]  coterie payments statement device:dev_01jd…\n\n"
    "coterie payments statement owner:own_01jd… --since 2026-01-01 --csv statement.csv",
)
def statement(
    account: Annotated[str, typer.Argument(help="Account, such as device:dev_…; by default that of the key.")] = "",
    since: Since = "",
    until: Until = "",
    csv_file: Csv = None,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show an account's postings over a period, with the balances before and after it."""
    with connect(url, key) as platform:
        name = account or _own_account(platform)
        result = platform.statement(name, since=moment("--since", since), until=moment("--until", until))
    if csv_file is not None:
        write_csv(csv_file, Posting, result.items)
        return
    rows = [
        [p.entry, when(p.at)[:10], p.account_id, credits(p.amount_microcredits), p.kind, p.note] for p in result.items
    ]
    title = f"{name}: {credits(result.opening_microcredits)} before, {credits(result.closing_microcredits)} after"
    show(result, as_json, lambda: table(title, ["entry", "when", "account", "credits", "kind", "note"], rows))


@app.command("verify", epilog="[bold]Example[/]  coterie payments verify && echo sound")
def verify(url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """Verify the sums and hash chains of the ledger and the audit log; exit code 1 on a fault."""
    with connect(url, key) as platform:
        book, audit = platform.verify_book(), platform.verify_audit()
    lines = [
        f"book: {book.entries} entries, {book.postings} postings, {book.seconds:.1f} s: {_sound(book.sound)}",
        f"head {book.head}",
        f"audit log: {audit.entries} entries, {audit.seconds:.1f} s: {_sound(audit.sound)}",
        f"head {audit.head}",
    ]
    rows = [["book", fault] for fault in book.faults] + [["audit log", fault] for fault in audit.faults]
    document = book.to_dict() | {"audit": audit.to_dict()}
    show(document, as_json, lambda: table("not sound", ["where", "fault"], rows) if rows else "\n".join(lines))
    if not (book.sound and audit.sound):
        raise typer.Exit(FAILED)


def _sound(yes: bool) -> str:
    return "[green]sound[/]" if yes else "[bold red]not sound[/]"


@app.command("summary", epilog="[bold]Example[/]  coterie payments summary --task digits --progress")
def summary(
    task: Annotated[str, typer.Option(help="Only this task, by id or name.")] = "",
    progress: Annotated[bool, typer.Option("--progress", help="Also show the cost of the task's progress.")] = False,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show outstanding escrow, top earners, costs of tasks and anomalies."""
    if progress and not task:
        raise Mistake("--progress needs one task; give --task")
    with connect(url, key) as platform:
        task_id = platform.find_task(task).id if task else ""
        result = platform.payment_summary(task_id)
        gained = progress_of(platform, task_id, result.paid_microcredits) if progress else None
    rows = [["paid", "all", credits(result.paid_microcredits)]]
    rows += [["in escrow", "all", credits(result.outstanding_microcredits)]]
    rows += [["task", t.task_id, credits(t.paid_microcredits)] for t in result.tasks]
    rows += [["earner", e.device_id, credits(e.paid_microcredits)] for e in result.earners]
    if gained is not None and gained.microcredits_per_accuracy_point is not None:
        points = f"{gained.accuracy_points:.1f} points gained"
        rows += [["accuracy point", points, credits(round(gained.microcredits_per_accuracy_point))]]
    rows += [["look at", line, ""] for line in [*result.anomalies, *(gained.updates if gained else ())]]
    document = result.to_dict() | (asdict(gained) if gained else {})
    show(document, as_json, lambda: table("", ["what", "who", "credits"], rows))


@app.command("deposit", epilog="[bold]Example[/]  coterie payments deposit pub_01jd… 250 --reference invoice-17")
def deposit(
    publisher: Annotated[str, typer.Argument(help="Publisher's subject, pub_….")],
    amount: Annotated[str, typer.Argument(metavar="CREDITS", help="Credits, with up to six decimals.")],
    reference: Annotated[str, typer.Option(help="Idempotency key of the deposit; by default a new one.")] = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Deposit credits for a publisher; the same reference counts once."""
    amount_microcredits = microcredits(amount)
    if not publisher.strip():
        raise Mistake("give the publisher's subject, pub_…; coterie keys list shows them")
    with connect(url, key) as platform:
        account = platform.deposit(publisher, amount_microcredits, key=reference or secrets.token_hex(8))
    show(account, as_json, lambda: f"{account.id} holds [bold]{credits(account.balance_microcredits)}[/] credits")


@dataclass(frozen=True, slots=True)
class Gained:
    """The cost of a task's progress.

    Attributes:
        accuracy_points: percentage points of accuracy gained.
        microcredits_per_accuracy_point: cost of one point; None without a gain.
        updates: refused and suspicious updates.
    """

    accuracy_points: float
    microcredits_per_accuracy_point: float | None
    updates: tuple[str, ...]


def progress_of(platform: Platform, task_id: str, paid_microcredits: int) -> Gained:
    """Compute the accuracy gained from the first to the last version, its cost, and refused or suspicious updates."""
    accuracy = [m.metrics["accuracy"] for m in platform.models(task_id) if "accuracy" in m.metrics]
    points = 100.0 * (accuracy[-1] - accuracy[0]) if len(accuracy) > 1 else 0.0
    events = [e for e in platform.events(task_id) if e.kind in ("update.rejected", "update.suspicious")]
    updates = tuple(f"round {e.round}, {e.device_id}: {e.message}" for e in events)
    return Gained(points, paid_microcredits / points if points > 0 else None, updates)


def credits(amount_microcredits: int) -> str:
    """Format micro-credits as credits, exactly."""
    return f"{Decimal(amount_microcredits).scaleb(-MICRO_DIGITS):f}"


def microcredits(text: str) -> int:
    """Parse credits into micro-credits, exactly."""
    try:
        amount = Decimal(text).scaleb(MICRO_DIGITS)
    except InvalidOperation as error:
        raise Mistake(f"{text!r} is not an amount; give credits such as 2.5") from error
    if not amount.is_finite() or amount != amount.to_integral_value() or amount <= 0:
        raise Mistake(f"{text!r} must be positive credits with at most six decimals")
    return int(amount)


def moment(option: str, text: str) -> float:
    """Parse an ISO date or time into Unix seconds, local time without an offset; 0 when empty."""
    if not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise Mistake(f"{option} {text!r} is not a date; write 2026-01-31 or 2026-01-31T12:00") from error


def write_csv(path: Path, kind: type[Payment] | type[Posting], items: Iterable[Payment | Posting]) -> None:
    """Write records as CSV with a column per field; - is standard output."""
    columns = [field.name for field in fields(kind)]
    write_rows(path, columns, ([getattr(item, column) for column in columns] for item in items))


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as CSV under their columns; - is standard output."""
    if str(path) == "-":
        _write(sys.stdout, columns, rows)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        _write(file, columns, rows)


def _write(file: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    writer = csv.writer(file)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_quoted(cell) for cell in row])


def _quoted(value: Any) -> Any:
    """Quote text that a spreadsheet would read as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _own_account(platform: Platform) -> str:
    me = platform.me()
    if me.role not in ("device", "publisher"):
        raise Mistake(f"an {me.role} has no account; name one, such as publisher:pub_…")
    return f"{me.role}:{me.subject}"
