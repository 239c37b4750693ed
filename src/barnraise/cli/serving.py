"""The controller alone: a new run or a resumed one, with workers that come by invite."""

from __future__ import annotations

from pathlib import Path

from barnraise.cli import console
from barnraise.cli.embedded import conclude
from barnraise.cli.hosting import open_host, prepare
from barnraise.cli.invites import new_invite
from barnraise.cli.session import work
from barnraise.cli.view import make_view
from barnraise.ledger import RunDirectory
from barnraise.plan.resolve import Plan


async def serve_new(plan: Plan, *, uses: int, hours: float, json: bool) -> None:
    """Make the run directory, prepare it and listen."""
    run = RunDirectory.create(plan.run_file.run.name, Path(plan.run_file.run.dir))
    with run.lock():
        console.note(f"run directory {run.path}")
        prepare(plan, run, console.note)
        await serve_run(run, plan, json=json, uses=uses, hours=hours)


async def serve_run(run: RunDirectory, plan: Plan, *, json: bool, uses: int = 0, hours: float = 0.0) -> None:
    """Serve a prepared run whose lock is held; print an invite for `uses` machines once it listens."""
    host = open_host(run, plan, console.warn)
    if host.machine.state.finished:
        host.ledger.close()
        conclude(host, None, json=json)
        return
    view = make_view()

    def listening(uri: str) -> None:
        where = uri.replace(" ", " and ")
        view.note(f"listening on {where}; should this be interrupted, go on with: barnraise resume {run.path}")
        if uses:
            view.note("workers join with:")
            key = host.server.enrolment.keys.public
            view.note(f"barnraise join '{new_invite(run, uri, key, uses=uses, hours=hours)}'")

    try:
        finish = await work(host, view, None, "serve", listening)
    finally:
        view.close()
    conclude(host, finish, json=json)
