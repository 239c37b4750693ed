"""A standby: a continuous copy of a run, and its controller once the first one is lost."""

from __future__ import annotations

import asyncio
import platform
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from barnraise.assembly import addresses
from barnraise.assembly.candidacy import Candidacy
from barnraise.assembly.ending import Summary, is_over
from barnraise.assembly.fencing import KEY, follows
from barnraise.assembly.hosting import recorded_plan, warm_up
from barnraise.assembly.ports import Ports
from barnraise.assembly.requests import take_over_wanted
from barnraise.assembly.resuming import resume_run
from barnraise.assembly.serving import resume_serving
from barnraise.assembly.voice import Voice
from barnraise.config.document import parse
from barnraise.config.load import build, dump
from barnraise.controller.standby.follower import Applicant, Follower
from barnraise.controller.standby.incoming_files import IncomingFiles
from barnraise.core.errors import (
    AddressError,
    CorruptionError,
    RunDirectoryError,
    WireError,
)
from barnraise.core.files import write_file
from barnraise.core.program import program
from barnraise.core.signals import on_signals
from barnraise.core.units import bytes_text
from barnraise.ledger import LedgerView, RunDirectory
from barnraise.ledger.copying import LedgerCopy
from barnraise.transport import Invite, Keys
from barnraise.transport.fallback import connection_for
from barnraise.transport.handover import HandoverListener

MARK = "standby"
"""A file in the folder while it is a copy, and no run by itself."""

TELL = 10.0
"""Seconds between two messages about its lag."""

_FOLDERS = ("checkpoints", "data", "keys", "logs", "requests", "segments")


@dataclass(frozen=True)
class StandbyPlace:
    """The folder of a standby's copy, and its address for workers: ports of 0 are any free ones."""

    folder: Path = Path("standby")
    host: str = ""
    port: int = 0
    http_port: int = 0
    name: str = ""


async def stand_by(ticket: Invite, voice: Voice, place: StandbyPlace) -> Summary | None:
    """Follow the run of a standby's invite, take over when its controller is lost, and return the run's summary.

    None when it ended without this standby, or a signal ended the standby. Raises InviteError when the controller
    refuses it, RunDirectoryError for a folder that is no copy or a broken one, AddressError when no controller answers.
    """
    run = _folder(place.folder, ticket.run)
    with run.lock(), Ports.reserve(ticket, place.host, place.port, place.http_port) as ports:
        voice.say(f"copying run {ticket.run} to {run.path}; workers would find it at {ports.uri}")
        run.write(run.path / addresses.FILE, msgspec.json.encode(addresses.Whereabouts(ports.uri, "serve")))
        follows(run, ticket.uri)
        take_over_wanted(run)  # from an earlier standby
        handover = await _follow(run, ticket, ports, voice, place.name)
        if handover is None:
            return None
        try:
            (run.path / MARK).unlink(missing_ok=True)
            ports.release()
            with LedgerView(run.ledger) as view:
                epoch = view.epoch + 1  # the next to open it
            voice.say(f"taking over run {ticket.run} (epoch {epoch}); listening at {ports.uri}")
            if is_over(run):
                return await resume_run(run, voice)
            return await resume_serving(run, recorded_plan(run), voice, handover)
        finally:
            await handover.close()


async def _follow(run: RunDirectory, ticket: Invite, ports: Ports, voice: Voice, name: str) -> HandoverListener | None:
    """Copy until this standby is to be the controller, and return the listener that workers have reached.

    None when nothing is left to do.
    """
    wanted = name or re.sub(r"[^A-Za-z0-9_.-]+", "-", platform.node()).strip("-_.")[:64] or "standby"
    keys = Keys.load_or_create(run.keys / KEY)
    copy = _open_copy(run, ticket.run)
    files = IncomingFiles(run.path, lambda content: _moved(content, ports))
    if copy.last_id and files.newest >= 0 and (lacking := copy.lacking(files.newest)):
        copy.close()
        raise _broken(run, f"the payloads of contributions {lacking[:5]} are missing")
    connection = connection_for(ticket.uri, voice.say)
    await connection.open(ticket.uri, ticket.server_key, keys)
    follower = Follower(connection, Applicant(ticket, keys, wanted, ports.uri), copy, files)
    candidacy = Candidacy(run, follower, ports, voice)
    loop, stopped, confirmed = asyncio.get_running_loop(), asyncio.Event(), False

    def stop(signal_name: str) -> None:
        voice.say(f"{signal_name}: no longer following; the copy stays in {run.path}")
        stopped.set()

    loop.add_signal_handler(signal.SIGUSR1, candidacy.told)
    work = (follower.follow(), _tell(run, follower, voice), stopped.wait(), candidacy.decide())
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(each) for each in work]
    try:
        with on_signals(stop, lambda: None):
            await connection.ready(15.0)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        if follower.finished:
            voice.say(f"{follower.finished}; the copy of it is in {run.path}")
        if stopped.is_set() or follower.finished:
            return None
        await check(run, follower)
        confirmed = True
        return candidacy.handover
    except (CorruptionError, WireError) as error:
        raise _broken(run, str(error)) from None
    except AddressError as error:
        if files.newest < 0:
            raise
        raise AddressError(
            f"{error}; if the controller is gone permanently, continue with the copy: {program()} resume {run.path}"
        ) from None
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await follower.close()
        if not confirmed:
            await candidacy.close()


async def check(run: RunDirectory, follower: Follower) -> None:
    """Check that the copy equals the original before a takeover.

    Raises RunDirectoryError.
    """
    try:
        await follower.check()
    except CorruptionError as error:
        raise RunDirectoryError(
            f"{run.path} is not taken over: {error}. Have the host resume its run, remove that folder, and start the "
            "standby again: it copies everything again. If the controller is gone permanently, `barnraise verify "
            f"{run.path}` shows the damage; `{program()} resume {run.path}` continues the copy as it is"
        ) from error


async def _tell(run: RunDirectory, follower: Follower, voice: Voice) -> None:
    """Report the copy's lag: once it is complete, and then from time to time.

    Prepare the takeover as soon as it is.
    """
    complete, warm, said_at = False, False, 0.0
    while True:
        await asyncio.sleep(0.2)
        if follower.complete and not warm:
            await asyncio.to_thread(lambda: warm_up(recorded_plan(run)))
            warm = True
        now = time.monotonic()
        following = follower.silence < follower.lease / 2
        if following and follower.term.epoch and (follower.complete != complete or now - said_at >= TELL):
            complete, said_at = follower.complete, now
            seconds = now - follower.in_sync_at if follower.lag else 0.0
            readiness = "can take over" if complete else "not complete yet"
            voice.say(
                f"row {follower.copy.last_id:,}, {follower.lag:,} rows ({seconds:.1f} s) behind; "
                f"checkpoint {follower.files.newest}; {bytes_text(follower.copied_bytes)} copied; {readiness}"
            )


def _folder(base: Path, name: str) -> RunDirectory:
    """Return the folder of a copy: a new one, or one that was begun before."""
    path = (base / name).absolute()
    if path.exists() and not (path / MARK).is_file():
        raise RunDirectoryError(
            f"{path} exists, but is not a copy that a standby keeps: if it took over once, it is a run by itself "
            f"({program()} resume {path}); else name another folder with --dir"
        )
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in _FOLDERS:
            (path / folder).mkdir(mode=0o700, exist_ok=True)
        write_file(path / MARK, b"a copy that `barnraise standby` keeps\n")
    except OSError as error:
        raise RunDirectoryError(f"cannot keep a copy in {path}: {error.strerror}; name another with --dir") from error
    return RunDirectory(path)


def _open_copy(run: RunDirectory, name: str) -> LedgerCopy:
    try:
        return LedgerCopy(run.ledger, run.segments, run=name)
    except CorruptionError as error:
        raise _broken(run, str(error)) from error


def _broken(run: RunDirectory, reason: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"the copy in {run.path} cannot be continued: {reason}. Remove that folder, and start the standby again: it "
        "copies everything again"
    )


def _moved(content: bytes, ports: Ports) -> bytes:
    """Return the run file of a run that moves here."""
    run_file = build(parse(content, "the controller's run file"))
    host, port, http_port = ports.where
    section = run_file.controller.model_copy(update={"host": host, "port": port, "http_port": http_port})
    return dump(run_file.model_copy(update={"controller": section})).encode()
