"""The actions of a host on a run, and the commands that do the same: their sentences, requests and refusals."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnraise.assembly import actions, addresses, requests
from barnraise.assembly.requests import ContinueRun, FinishRun, PauseRun, RevokeNode
from barnraise.cli.main import main
from barnraise.core.errors import BarnraiseError, InputError, RunDirectoryError
from barnraise.ledger import Ledger, Noted, RunDirectory, notes
from barnraise.transport import Invite, Keys

from ..cli.test_status import BEGINNING, END, make_run

LATER = " as soon as it resumes; no controller runs now"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make_run(tmp_path, BEGINNING)


def note(run: RunDirectory, *told: notes.Note) -> None:
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit([Noted(20.0, one) for one in told], {})


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    try:
        found = main(list(arguments))
    except SystemExit as done:
        found = int(done.code or 0)
    assert found == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


@contextmanager
def obeying(run: RunDirectory, journaled: Callable[[requests.Request], list[notes.Note]]) -> Iterator[None]:
    """A process holds the run's lock, and handles requests as a controller: it removes them once rows are durable."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.02):
            for path, request in zip(sorted(run.requests.glob("*.json")), requests.kept(run), strict=True):
                note(run, *journaled(request))
                path.unlink()

    with run.lock():
        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def obeyed(request: requests.Request) -> list[notes.Note]:
    if isinstance(request, PauseRun):
        return [notes.HostPaused(request.reason)]
    return [notes.HostContinued()] if isinstance(request, ContinueRun) else []


def test_a_controller_that_runs_is_asked_and_the_outcome_told(run: RunDirectory) -> None:
    with obeying(run, obeyed):
        assert actions.carry_on(run) == "the host has not paused the run"
        assert actions.pause(run, "it is hot \x1b[2J") == "the run is paused"
        assert actions.pause(run) == "the run is paused already: the host paused the run: it is hot [2J"
        assert actions.carry_on(run) == "the run continues"
        note(run, notes.Paused("1 live nodes"))
        assert actions.carry_on(run) == "the host has not paused the run; it is paused: 1 live nodes"
        actions.pause(run)
        assert actions.carry_on(run) == "the host's pause is over, and the run is paused: 1 live nodes"
        assert actions.revoke(run, "a", "it lies") == "'a' is out of the run"
        assert actions.finish(run).startswith("the run finishes")
    assert requests.kept(run) == []


def test_without_a_controller_requests_are_kept_for_the_next(run: RunDirectory) -> None:
    assert actions.pause(run, "night") == "the run is paused" + LATER
    assert actions.pause(run) == "the run is paused already: the host paused the run: night"
    assert actions.revoke(run, "a") == "'a' is out of the run" + LATER
    assert actions.carry_on(run) == "the run continues" + LATER
    assert actions.carry_on(run) == "the host has not paused the run"
    assert actions.finish(run).startswith("the run finishes as soon as it resumes")
    with pytest.raises(InputError, match="is to finish: asked to finish; it cannot be paused"):
        actions.pause(run)
    assert requests.kept(run) == [
        PauseRun("night"), RevokeNode("a", "no reason given"), ContinueRun(), FinishRun("asked to finish")
    ]  # fmt: skip


def test_a_controller_that_does_not_answer_holds_up_no_page(run: RunDirectory) -> None:
    with run.lock():
        for act in (actions.pause, actions.finish, lambda run: actions.revoke(run, "b")):
            began = time.monotonic()
            assert "has not answered yet" in act(run) or act is actions.finish
            assert time.monotonic() - began < 2.5
    assert len(requests.kept(run)) == 3


@pytest.mark.parametrize("act", [actions.pause, actions.carry_on])
@pytest.mark.parametrize(
    ("end", "why"), [(END[:1], "is finishing: SIGINT"), (END, "is over: SIGINT")], ids=["ends", "over"]
)
def test_a_run_that_ends_is_not_paused(
    run: RunDirectory, act: Callable[[RunDirectory], str], end: list[Noted], why: str
) -> None:
    note(run, *(one.note for one in end))
    with pytest.raises(InputError, match=why):
        act(run)
    assert requests.kept(run) == []


def test_a_run_that_is_over_is_not_finished_again(run: RunDirectory) -> None:
    note(run, *(one.note for one in END))
    assert actions.finish(run) == "the run is over already"
    with pytest.raises(InputError, match="is finished"):
        actions.revoke(run, "a")
    with pytest.raises(InputError, match="neither a node nor an invite 'z'"):
        actions.revoke(run, "z")
    assert requests.kept(run) == []


def test_an_invite_is_a_text_that_a_worker_can_use(run: RunDirectory) -> None:
    with pytest.raises(RunDirectoryError, match="has never listened"):
        actions.invite(run)
    Keys.load_or_create(run.keys / "controller.json")
    run.write(run.path / addresses.FILE, json.dumps({"uri": "zmq://127.0.0.1:7000", "mode": "serve"}).encode())
    invite = Invite.parse(actions.invite(run, role="observer", uses=3, hours=2.0, host="barn.example"), time.time())
    assert (invite.role, invite.uses, invite.host) == ("observer", 3, "barn.example")
    assert abs(invite.expires - time.time() - 7200.0) < 60.0
    bad: list[tuple[dict[str, object], str]] = [
        ({"uses": 0}, "at least 1"), ({"hours": 0.0}, "at least 0.01"), ({"hours": float("inf")}, "at least 0.01"),
        ({"hours": float("nan")}, "at least 0.01"), ({"role": "wurker"}, "worker"),
    ]  # fmt: skip
    for options, why in bad:
        with pytest.raises(BarnraiseError, match=why):
            actions.invite(run, **options)  # type: ignore[arg-type]


def test_the_commands_say_the_same_and_how_to_go_back(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    with obeying(run, obeyed):
        told = said(capsys, "pause", str(run.path), "--reason", "night")
        assert told.splitlines() == ["the run is paused", f"to continue it: barnraise continue {run.path}"]
        assert said(capsys, "pause", str(run.path)).startswith("the run is paused already: the host paused the run: n")
        assert said(capsys, "continue", str(run.path)) == "the run continues\n"
        assert said(capsys, "continue", str(run.path)) == "the host has not paused the run\n"


@pytest.mark.parametrize("command", ["pause", "continue"])
def test_a_folder_that_is_no_run_and_a_run_that_is_over_are_refused(
    run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert "Traceback" not in said(capsys, command, str(tmp_path / "nowhere"), code=2)
    note(run, *(one.note for one in END))
    assert "is over: SIGINT; it cannot be" in said(capsys, command, str(run.path), code=2)
