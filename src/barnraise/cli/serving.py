"""The controller alone: a new run or a resumed one, with workers that come by invite."""

from __future__ import annotations

from pathlib import Path

from barnraise.cli import console
from barnraise.cli.addresses import listen, recorded_mode
from barnraise.cli.embedded import conclude
from barnraise.cli.hosting import Host, making, open_host, prepare
from barnraise.cli.invites import new_invite, show
from barnraise.cli.session import work
from barnraise.cli.signals import interruptible
from barnraise.cli.view import make_view
from barnraise.core.errors import AddressError
from barnraise.ledger import RunDirectory
from barnraise.plan.resolve import Plan


async def serve_new(plan: Plan, *, uses: int, hours: float, json: bool) -> None:
    """Make the run directory, prepare it and listen."""
    run = RunDirectory.create(plan.run_file.run.name, Path(plan.run_file.run.dir))
    with run.lock(), making(run, console.note):
        console.note(f"run directory {run.path}")
        with interruptible():
            prepare(plan, run, console.note)
        await serve_run(run, plan, json=json, uses=uses, hours=hours)


async def finish_run(run: RunDirectory, plan: Plan, *, json: bool) -> None:
    """End a run whose lock is held, as a request in its folder says: without local workers, and where the port is
    taken by now, without telling anybody."""
    with interruptible():
        host = open_host(run, plan, console.warn)
    view = make_view()
    try:
        finish = await work(host, view, None, await _listen_or_not(host))
    finally:
        view.close()
    conclude(host, finish, json=json)


async def _listen_or_not(host: Host) -> str:
    """Listen where the run did, so that workers that wait there hear of its end; where that cannot be, nowhere."""
    try:
        return await listen(host.server, host.run, host.plan, recorded_mode(host.run))
    except AddressError as error:
        console.warn(f"{error}; workers that wait for the run are not told")
        return await host.server.bind(f"inproc://{host.run.path.name}")


async def serve_run(run: RunDirectory, plan: Plan, *, json: bool, uses: int = 0, hours: float = 0.0) -> None:
    """Serve a prepared run whose lock is held; print an invite for `uses` machines once it listens."""
    with interruptible():
        host = open_host(run, plan, console.warn)
    if host.machine.state.finished:
        host.ledger.close()
        conclude(host, None, json=json)
        return
    view = make_view()
    try:
        uri = await listen(host.server, run, plan, "serve")
        where = uri.replace(" ", " and ")
        view.note(f"listening on {where}; should this be interrupted, go on with: barnraise resume {run.path}")
        if uses:
            show(run, new_invite(run, uri, host.server.enrolment.keys.public, uses=uses, hours=hours), view.note)
        finish = await work(host, view, None, uri)
    finally:
        view.close()
    conclude(host, finish, json=json)
