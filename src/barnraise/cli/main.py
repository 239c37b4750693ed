"""`barnraise`: finds the command, loads only its module, and turns errors into messages and exit codes.

Exit codes: 0 done, 1 failed, 2 bad input, 75 come again (`join`), 130 interrupted.
"""

from __future__ import annotations

import importlib
import keyword
import os
import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from barnraise.cli import console
from barnraise.core.errors import BarnraiseError
from barnraise.core.signals import INTERRUPTED

COMMANDS = {
    "train": ("barnraise.cli.train", "Train with a controller and local workers on this machine."),
    "serve": ("barnraise.cli.serve", "Run the controller alone; prints an invite for workers."),
    "join": ("barnraise.cli.join", "Work for the run that an invite is for, until stopped."),
    "standby": ("barnraise.cli.standby", "Copy a run as it goes, and take over when its controller is gone."),
    "invite": ("barnraise.cli.invite", "Make another invite to a run."),
    "invites": ("barnraise.cli.invited", "List a run's invites: role, uses left, expiry."),
    "status": ("barnraise.cli.status", "Show how a run stands."),
    "view": ("barnraise.cli.view_page", "Show a run on a page in the browser, while it works or afterwards."),
    "top": ("barnraise.cli.top", "Show the runs in a folder."),
    "events": ("barnraise.cli.events", "List the events of a run, and further ones as they come."),
    "story": ("barnraise.cli.story", "Show the history of an assignment or of a node, from the ledger."),
    "forecast": ("barnraise.cli.forecast", "Say when a run ends, and what would change that."),
    "report": ("barnraise.cli.report", "Write a run's report, or its figures for TensorBoard, W&B, MLflow or trackio."),
    "keys": ("barnraise.cli.keys", "Make the key of a run whose updates are encrypted."),
    "resume": ("barnraise.cli.resume", "Continue a run that was interrupted or killed."),
    "pause": ("barnraise.cli.pause", "Let a run's workers rest until it is continued."),
    "continue": ("barnraise.cli.pause", "Continue a run that was paused."),
    "finish": ("barnraise.cli.finish", "End a run early, with the model trained so far."),
    "revoke": ("barnraise.cli.revoke", "Remove a node from a run, or revoke an invite."),
    "export": ("barnraise.cli.export", "Write a run's model in Hugging Face format."),
    "try": ("barnraise.cli.trying", "Try a run's model: it solves your formula, or continues your text."),
    "verify": ("barnraise.cli.verify", "Check that a run directory is unchanged since its run wrote it, to the byte."),
    "lab": ("barnraise.cli.lab", "Train over emulated wide-area links between network namespaces of this machine."),
    "simulate": ("barnraise.cli.simulate", "Run the same engine under virtual time, with any number of nodes."),
    "attack": ("barnraise.cli.attack", "Find out which rule withstands which attack, and what updates show of rows."),
    "data": ("barnraise.cli.data", "Make and check datasets."),
    "clean": ("barnraise.cli.clean", "List and remove what runs and joins left on this machine."),
    "init": ("barnraise.cli.init", "Write a commented run file to start from."),
    "check": ("barnraise.cli.check", "Say whether a run file is sound, and what the run would cost."),
    "doctor": ("barnraise.cli.doctor", "Say what this machine has and lacks, with remedies."),
}
"""Each command's module and its help. The module holds a function (or a Typer application) of the command's name, with
`_` behind it where Python keeps the name for itself."""

TRACEBACK = "BARNRAISE_TRACEBACK"
"""Environment variable: set to 1, it shows the traceback of an unexpected error."""


class LazyGroup(TyperGroup):
    """Lists commands from the table; imports a command's module when it is run or asked for its own help."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, line) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line))  # for the list of `--help`

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load_command(str(name)), rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def load_command(name: str) -> Any:
    """Load the command `name` from its module."""
    function = f"{name}_" if keyword.iskeyword(name) else name
    found = getattr(importlib.import_module(COMMANDS[name][0]), function)
    application = found if isinstance(found, typer.Typer) else typer.Typer(add_completion=False)
    if application is not found:
        application.command(name)(found)
    application.rich_markup_mode = None  # plain help is quick help
    command = typer.main.get_command(application)
    command.name = name
    return command


def _version(wanted: bool) -> None:
    if wanted:
        from barnraise import __version__

        console.say(f"barnraise {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def barnraise(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    """Train and fine-tune language models on machines that belong to many people."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, by default that of this process; the exit code (or SystemExit with one)."""
    try:
        typer.main.get_command(app).main(arguments, prog_name="barnraise")
    except BarnraiseError as error:
        console.fail(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if os.environ.get(TRACEBACK) == "1":
            raise
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        console.fail(f"{what}\nThis should not have happened; {TRACEBACK}=1 shows where it did.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
