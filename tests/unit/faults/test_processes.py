"""Planned faults of local workers, without a run: what is played when, on which processes, and who is to come yet."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import msgspec
import pytest

from barnraise.assembly.forkserver import End
from barnraise.assembly.local_workers import LocalWorkers
from barnraise.config.faults import KINDS, Fault, Hang, Join, Kill, KillController, Planned, When
from barnraise.config.trial_sections import WorkerSection
from barnraise.core.errors import RunDirectoryError
from barnraise.faults.processes import WorkerProcesses
from barnraise.faults.supervisor import VARIABLE, Revive, Supervised
from barnraise.ledger import RunDirectory
from barnraise.transport.links.link import Link

A, B = WorkerSection(name="a"), WorkerSection(name="b")


class Nursery:
    """Takes orders, reports nothing."""

    def __init__(self, again: bool = False) -> None:
        self.again, self.orders = again, list[bytes]()

    def order(self, line: bytes) -> None:
        self.orders.append(line)


def at(seconds: float, fault: Fault) -> Planned:
    name = next(name for name, kind in KINDS.items() if kind.struct is type(fault))
    return Planned(When(seconds=seconds), name, fault, 0)


def workers_of(
    run: RunDirectory,
    faults: Sequence[Planned] = (),
    link_of: Callable[[int, WorkerSection], Link | None] = lambda index, worker: None,
) -> LocalWorkers:
    """One worker, and those that join; a controller that knows no node and listens at no address."""
    local = LocalWorkers(run, [A], faults, link_of, lambda text: None)
    failed: list[BaseException] = []

    def supervise(task: asyncio.Task[None]) -> None:
        task.add_done_callback(lambda done: failed.append(error) if (error := done.exception()) else None)

    state = SimpleNamespace(nodes={})
    local.server = SimpleNamespace(  # type: ignore[assignment]
        post=lambda event: None,
        supervise=supervise,
        failed=failed,
        machine=SimpleNamespace(state=state),
        enrolment=SimpleNamespace(keys=SimpleNamespace(public="key")),
    )
    local.uri, local.forkserver = "zmq://x:1", Nursery()  # type: ignore[assignment]
    return local


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create("trial", tmp_path)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def stands_still(process: subprocess.Popen[bytes]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(20.0):
        while not what():
            await asyncio.sleep(0.01)


def test_a_run_waits_for_a_worker_that_joins_by_the_clock(run: RunDirectory) -> None:
    async def play() -> None:
        local = workers_of(run, [at(60.0, Kill(("a",))), at(90.0, Join(B))])
        local.join(A)
        local.faults.play(share=0.0, seconds=61.0)
        local.ended("a", -9, "")
        assert not local.exhausted
        local.faults.play(share=0.0, seconds=91.0)
        assert not local.exhausted
        local.give_up("b", "over")
        assert set(local.exhausted) == {"a", "b"}

    asyncio.run(play())


def test_a_run_does_not_wait_for_a_worker_that_joins_by_tokens(run: RunDirectory) -> None:
    async def play() -> None:
        local = workers_of(run, [Planned(When(share=0.9), "join", Join(B), 0)])
        local.join(A)
        local.give_up("a", "over")
        assert local.exhausted == {"a": "over"}

    asyncio.run(play())


class Died(BaseException):
    """The process of the controller has ended."""


def test_the_next_controller_plays_the_faults_that_a_planned_death_preceded(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[str] = []
    plans = [
        at(1.0, KillController(2.0)), at(2.0, Hang(("b",), 9.0)), at(2.5, KillController(2.0)), at(1.0, Kill(("a",))),
        at(3.0, Join(B)),
    ]  # fmt: skip

    def die(self: Supervised, revive: Revive) -> NoReturn:
        monkeypatch.setenv(VARIABLE, msgspec.json.encode(Supervised({}, 0, revive.played)).decode())
        raise Died

    def live(begun: bool) -> LocalWorkers:
        local = workers_of(run, plans)
        local.note = local.faults.note = played.append
        if begun:
            local.skip_faults(0.0, 5.0)
            played.extend(f"dead {name}" for name in sorted(local.down))
        return local

    async def lives() -> None:
        for count in range(2):
            with pytest.raises(Died):
                live(count > 0).faults.play(seconds=5.0)
        live(True).faults.play(seconds=5.0)

    monkeypatch.setattr(Supervised, "die", die)
    monkeypatch.setenv(VARIABLE, msgspec.json.encode(Supervised({}, 0)).decode())
    asyncio.run(lives())
    assert played == [
        "fault: kill worker 'a' at 1 s",
        "fault: kill_controller at 1 s",
        "dead a",
        "fault: hang worker 'b' at 2 s",
        "fault: kill_controller at 2.5 s",
        "dead a",
        "fault: worker 'b' joins",
    ]


@pytest.mark.parametrize("again", [False, True])
def test_a_worker_killed_with_the_controller_stays_down_after_its_restart(run: RunDirectory, again: bool) -> None:
    local = workers_of(run, [at(5.0, Kill(("a",))), at(5.0, Join(B))])
    local.forkserver = Nursery(again)  # type: ignore[assignment]
    local.skip_faults(0.0, 6.0)
    assert [worker.name for worker in local.workers] == ["b"]
    assert local.exhausted == {"a": "ended, as the run file's faults say"}
    orders = [msgspec.json.decode(line, type=End) for line in local.forkserver.orders]  # type: ignore[union-attr]
    assert orders == [End("a")] * again


def test_the_longest_of_overlapping_hangs_counts(sleeper: subprocess.Popen[bytes]) -> None:
    async def play() -> None:
        loop, workers = asyncio.get_running_loop(), SimpleNamespace(pids={"a": sleeper.pid})
        processes = WorkerProcesses(workers)  # type: ignore[arg-type]
        start = loop.time()
        for seconds in (0.2, 1.0, 0.3):
            processes.play(at(0.0, Hang(("a",), seconds)))
        await until(lambda: stands_still(sleeper))
        await until(lambda: not stands_still(sleeper))
        assert loop.time() - start >= 1.0

    asyncio.run(play())


def test_a_worker_without_a_process_hangs_when_it_gets_one(run: RunDirectory, sleeper: subprocess.Popen[bytes]) -> None:
    async def play() -> None:
        local = workers_of(run, [at(0.0, Hang(("a",), 60.0))])
        local.join(A)
        local.faults.play(share=0.0, seconds=0.1)
        assert not stands_still(sleeper)
        local.has_process("a", sleeper.pid)
        await until(lambda: stands_still(sleeper))
        local.processes.wake_all()
        await until(lambda: not stands_still(sleeper))

    asyncio.run(play())


def test_a_worker_killed_before_it_joins_never_starts(run: RunDirectory) -> None:
    async def play() -> None:
        local = workers_of(run, [at(1.0, Kill(("b",))), Planned(When(share=0.5), "join", Join(B), 0)])
        local.join(A)
        local.faults.play(share=0.0, seconds=2.0)
        local.faults.play(share=0.6, seconds=2.0)
        assert len(local.forkserver.orders) == 1  # type: ignore[union-attr]
        assert local.up == {"a"}

    asyncio.run(play())


def test_a_restarted_worker_keeps_its_link(run: RunDirectory) -> None:
    places: list[tuple[int, str]] = []

    def link_of(index: int, worker: WorkerSection) -> None:
        places.append((index, worker.name))

    async def play() -> None:
        local = workers_of(run, [at(5.0, Join(B))], link_of)
        for worker in (A, A, B, A):
            local.join(worker)

    asyncio.run(play())
    assert places == [(0, "a"), (0, "a"), (1, "b"), (0, "a")]


def test_a_worker_that_cannot_restart_stays_down(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        local = workers_of(run)
        local.join(A)

        def broken(worker: WorkerSection) -> Any:
            raise RunDirectoryError("the key is gone")

        monkeypatch.setattr("barnraise.assembly.local_workers.RESTARTS", (0.0, 0.0))
        monkeypatch.setattr(local, "order_for", broken)
        local.ended("a", 1, "broke")
        await until(lambda: bool(local.exhausted))
        assert local.exhausted == {"a": "the key is gone"}

    asyncio.run(play())


def test_a_forkserver_that_talks_nonsense_ends_the_run(run: RunDirectory) -> None:
    async def play() -> list[BaseException]:
        local = workers_of(run)

        async def report() -> bytes:
            return b"a library says hello\n"

        local.forkserver.report = report  # type: ignore[union-attr, method-assign]
        local.workers = []
        local.start(local.server, "zmq://x:1")
        failed: list[BaseException] = local.server.failed  # type: ignore[attr-defined]
        await until(lambda: bool(failed))
        return failed

    assert isinstance(asyncio.run(play())[0], msgspec.DecodeError)


def test_an_interrupted_run_hears_out_a_worker_whose_process_is_no_more(
    run: RunDirectory, sleeper: subprocess.Popen[bytes]
) -> None:
    """The news of its end may come before its last words: it left, and did not just end."""

    async def play() -> None:
        local, said = workers_of(run), []
        node = SimpleNamespace(live=True, revoked=False)
        local.server.machine.state.nodes["a"] = node  # type: ignore[assignment]
        local.server.post = said.append  # type: ignore[method-assign]
        local.has_process("a", sleeper.pid)
        going = asyncio.ensure_future(local.leave())
        await asyncio.sleep(0.1)
        said.clear()
        local.ended("a", 0, "")
        await asyncio.sleep(0.1)
        assert not going.done()
        assert not said
        node.live = False
        await asyncio.wait_for(going, 1.0)
        assert not said

    asyncio.run(play())


PARENT = """
import os, subprocess, sys
from functools import partial
from barnraise.core.processes import die_with_parent
print(subprocess.run([sys.executable, "-c", ""], preexec_fn=partial(die_with_parent, {parent})).returncode)
"""


@pytest.mark.parametrize(("parent", "code"), [("os.getpid()", 0), ("os.getppid()", 1)])
def test_a_process_whose_parent_is_another_by_now_ends(parent: str, code: int) -> None:
    script = PARENT.format(parent=parent)
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == f"{code}\n"


def test_a_parent_may_be_process_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the command of a container is."""
    from barnraise.core import processes

    exits: list[int] = []
    monkeypatch.setattr(processes.os, "getppid", lambda: 1)
    monkeypatch.setattr(processes.os, "_exit", exits.append)
    monkeypatch.setattr(processes.ctypes, "CDLL", lambda name: SimpleNamespace(prctl=lambda option, number: signal))
    processes.die_with_parent(1)
    assert not exits
    processes.die_with_parent(2)
    assert exits == [1]
