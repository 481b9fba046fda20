"""The command `coterie`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.markup import escape

from coterie import version
from coterie_cli.commands import (
    alike,
    backup,
    blobs,
    cells,
    certs,
    circle,
    conformance,
    contributions,
    demo,
    device,
    device_links,
    doctor,
    fleet,
    keys,
    logs,
    owners,
    payments,
    privacy,
    prune,
    refit,
    results,
    schedule,
    task,
    trust,
    up,
)
from coterie_cli.console import WRONG_INPUT, err, exit_on_error

EPILOG = """[bold]Examples[/]

coterie demo        [dim]12 devices learn to read digits, in a minute[/]\n
coterie up          [dim]the whole platform on this machine[/]\n
coterie owners token Ada\n
coterie device register --token … --name phone --home phone\n
coterie task create digits --model model.safetensors --rounds 10\n
coterie task watch digits
"""

# typer vendors click, so this takes click's UsageError from a class that typer exports.
UsageError: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
app = typer.Typer(
    name="coterie",
    help="Run a Coterie platform, its devices and its learning tasks.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"coterie {version.full_version()}")
        raise typer.Exit


@app.callback()
def _coterie(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show version and commit, and exit."),
    ] = False,
) -> None:
    """Run a Coterie platform, its devices and its learning tasks."""


app.command("up", epilog=up.EPILOG)(up.up)
app.command("demo", epilog=demo.EPILOG)(demo.demo)
app.command("backup", epilog=backup.BACKUP_EPILOG)(backup.backup)
app.command("restore", epilog=backup.RESTORE_EPILOG)(backup.restore)
app.command("prune", epilog=prune.EPILOG)(prune.prune)
device.app.command("link", epilog=device_links.LINK_EPILOG)(device_links.link)
device.app.command("links", epilog=device_links.LINKS_EPILOG)(device_links.links)
device.app.command("unlink", epilog=device_links.UNLINK_EPILOG)(device_links.unlink)
app.add_typer(device.app, name="device")
task.app.registered_commands += results.app.registered_commands + contributions.app.registered_commands
task.app.registered_commands += refit.app.registered_commands + alike.app.registered_commands
app.add_typer(task.app, name="task")
task.app.command("schedule", epilog=schedule.EPILOG)(schedule.schedule)
app.add_typer(cells.app, name="cells")
app.add_typer(fleet.app, name="fleet")
app.add_typer(owners.app, name="owners")
app.add_typer(keys.app, name="keys")
app.add_typer(trust.app, name="trust")
app.add_typer(payments.app, name="payments")
app.add_typer(privacy.app, name="privacy")
app.command("logs", epilog=logs.EPILOG)(logs.logs)
app.add_typer(blobs.app, name="blobs")
app.command("doctor", epilog=doctor.EPILOG)(doctor.doctor)
app.add_typer(circle.app, name="circle")
app.command("certs", epilog=certs.EPILOG)(certs.certs)
app.command("conformance", epilog=conformance.EPILOG)(conformance.conformance)


def run() -> None:
    """Run the command; show a mistake of the user in one line, without a traceback."""
    with exit_on_error():
        try:
            code = app(prog_name="coterie", standalone_mode=False)
        except UsageError as error:
            sys.exit(_explain(error))
        except typer.Abort:
            raise KeyboardInterrupt from None
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: Any) -> int:
    """Print the mistake and where to read more, or the help of a command without arguments; return the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        where = f"; see `{error.ctx.command_path} --help`" if error.ctx is not None else ""
        err.print(f"[bold red]error:[/] {escape(error.format_message().rstrip('.') + where)}", soft_wrap=True)
    return WRONG_INPUT


if __name__ == "__main__":
    run()
