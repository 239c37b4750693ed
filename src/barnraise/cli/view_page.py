"""`barnraise view RUN_DIR`: a run on a page in the browser, from its folder, while it works or after it ended.

Reads, never writes, but for the key that its links are signed with.
"""

from __future__ import annotations

import time
import webbrowser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from barnraise.cli import console
from barnraise.core.errors import InputError


def view(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    host: Annotated[
        str, typer.Option(help="Address to listen on; by default only this machine reaches it.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(help="TCP port; 8710 or a free one unless given.", min=0, max=65535, show_default=False),
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser, too.")] = False,
    share: Annotated[
        str,
        typer.Option(
            metavar="observer|NODE",
            help="Print the path of a link and end: for an observer, who sees no names, or for whoever lends a node.",
            show_default=False,
        ),
    ] = "",
    days: Annotated[float, typer.Option(help="How long such a link is good.", min=0.01, max=3650.0)] = 30.0,
    certificate: Annotated[
        str, typer.Option(metavar="FILE", help="A certificate for TLS, in PEM.", show_default=False)
    ] = "",
    key: Annotated[str, typer.Option(metavar="FILE", help="Its private key, in PEM.", show_default=False)] = "",
) -> None:
    """Show a run on a page: its losses, workers, matching, checks and events, with its past played back at any speed.

    Works for a run that works, is finished, or was interrupted, and for a simulation. A controller that works serves
    the same page itself. The printed address has the run's token, with which the page can finish or pause the run:
    without it other users of this machine may look only. A link of --share is a path behind the address of the page.
    Ctrl-C ends.
    """
    from barnraise.ledger import RunDirectory

    run = RunDirectory.open(run_dir)
    from barnraise.cli.dashboards import lacking

    if told := lacking():
        raise InputError(told)
    if bool(certificate) != bool(key):
        raise InputError("--certificate and --key belong together: give both, or none")
    from barnraise.dashboard.access import TOKEN, token_of
    from barnraise.dashboard.acting import Acting
    from barnraise.dashboard.passes import OBSERVER
    from barnraise.dashboard.server import Dashboard, TlsFiles
    from barnraise.dashboard.source import FolderSource

    if share:
        links = Acting(run, token_of(run))
        if not (run.keys / TOKEN).is_file():
            raise InputError(
                f"{run.path} keeps no key for links: it is sealed, simulated, or cannot be written to; share "
                "report.html, or a page that this command serves, whose buttons make links"
            )
        console.say(
            links.path(days) if share == OBSERVER else links.act("share", {"node": share, "days": days})["path"]
        )
        return
    source = FolderSource(run)
    source.look()  # a ledger that cannot be read is told before a page is
    with Dashboard(source, host, port, TlsFiles(certificate, key) if certificate else None) as made:
        console.say(f"page: {made.entry}")
        with TemporaryDirectory(prefix="barnraise-page-") as private:
            if browser:
                webbrowser.open(_entrance(Path(private), made.entry))
            while not made.failed:
                time.sleep(0.5)
        raise InputError(f"the page has failed: {made.failed}")


def _entrance(folder: Path, entry: str) -> str:
    """Return the address of a file that leads to the page: others would see the token among a browser's arguments."""
    file = folder / "open.html"
    file.touch(0o600)
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={entry}"><a href="{entry}">page</a>')
    return file.as_uri()
