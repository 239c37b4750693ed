"""A controller that is killed and comes back: real ledger, real checkpoints, real tensors."""

from __future__ import annotations

import itertools
import math
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from barnraise import aggregation, compression, training
from barnraise.aggregation.base import Rule
from barnraise.controller.machine import Controller
from barnraise.controller.state import actions as act
from barnraise.controller.state import effects, saved
from barnraise.controller.state import events as ev
from barnraise.controller.state.settings import GateSettings
from barnraise.controller.state.state import Newest, State
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.controller.tensors.recovery import Replayed, replay, restore
from barnraise.core.errors import CorruptionError, VersionRefusedError
from barnraise.core.types import KINDS, AnyTask, Blob, NodeProfile, ParameterRange
from barnraise.ledger import Checkpoints, Ledger
from barnraise.ledger.decisions import Assigned, Judged, Noted, VersionClosed
from barnraise.ledger.records import HEADER_BYTES
from barnraise.wire.messages import PROTOCOL_VERSION, Assign, Hello, Offer, RequestTask

from ....state_machine.engine import contribution, digest, engine_settings

SIZE = 300


def vector(seed: int) -> Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))


def make_server(robust: bool = True, rule: Rule | None = None) -> ParameterServer:
    """One that withstands liars, or one that nothing protects, and a large step takes out of all bounds."""
    return ParameterServer(
        vector(0),
        0,
        rule=rule or (aggregation.create("trimmed_mean", trim_ratio=0.4) if robust else aggregation.create("mean")),
        codecs=[compression.create("topk", ratio=0.1), compression.create("fp16")],
        downlink=compression.create("int8"),
        outer=training.create("delayed_nesterov", learning_rate=0.7 if robust else 100.0),
        average=0.5,
    )


class Workers:
    """The other machines, which live on when the controller dies: the open tasks of each."""

    def __init__(self) -> None:
        self.tasks: dict[str, list[AnyTask]] = {node: [] for node in "abcd"}
        self._turns = itertools.cycle("abcd")

    def turn(self) -> str:
        return next(self._turns)


class Run:
    """A controller on disk, with a shell that does one thing after another. Opening it again is what a crash leaves."""

    robust = True
    buffer_size: int | None = 3
    minimum_nodes = 3
    gate = GateSettings()

    def __init__(
        self, folder: Path, workers: Workers | None = None, warn: Callable[[str], None] = lambda text: None
    ) -> None:
        self.workers = workers if workers is not None else Workers()
        self.settings = engine_settings(
            exchanged=SIZE,
            tokens=600,
            most=10**4,
            memory=1 << 30,
            partitions=((ParameterRange(0, SIZE),),),
            tune=False,
            rungs=(10**4,),
            last=10**4,
            delta=10**4,
            minimum_nodes=self.minimum_nodes,
            gate=self.gate,
            buffer_size=self.buffer_size,
            checkpoint_seconds=4.0,
            participation=False,  # rates may be looked at sooner after a restart
        )
        self.ledger = Ledger(folder / "ledger.sqlite", folder / "segments", run="trial")
        self.checkpoints, self.server = Checkpoints(folder / "checkpoints"), make_server(self.robust, self.make_rule())
        self.found: Replayed = replay(self.ledger, self.checkpoints)
        fresh = not self.found.digests
        if fresh:
            self.checkpoint(b"")
            self.found = replay(self.ledger, self.checkpoints)
        self.made = restore(self.server, self.found, self.checkpoints, self.ledger, warn)
        self.now = self.found.time
        self.machine = Controller(self.settings, self.found.state, self.ledger.epoch)
        self.greeted: set[str] = set()
        self.payloads: dict[int, bytes] = {}
        self.queue: list[act.Action] = []
        self.finished = False
        self._take(
            self.machine.start(self.server.digest, 0.0) if fresh else self.machine.resume(self.now, grace=math.inf)
        )

    def make_rule(self) -> Rule | None:
        """Return the aggregation rule; None: a usual one."""
        return None

    def checkpoint(self, state: bytes) -> None:
        self.checkpoints.save(
            self.server.version,
            ledger_id=self.ledger.last_id,
            parameters_digest=self.server.digest,
            state=state,
            tensors={"parameters": {name: tensor.clone() for name, tensor in self.server.state().items()}},
        )

    def handle(self, event: ev.Event) -> None:
        self._take(self.machine.handle(event, self.now))

    def _take(self, actions: list[act.Action]) -> None:
        decisions = [action.decision for action in actions if isinstance(action, act.Journal)]
        accepted = [d for d in decisions if isinstance(d, Judged) and d.verdict == "accepted"]
        self.ledger.commit(decisions, {d.assignment: self.durable(d.assignment, d.node) for d in accepted})
        for action in actions:
            if isinstance(action, act.Send) and isinstance(action.message, Assign):
                self.workers.tasks[action.node].append(action.message.task)
            elif isinstance(action, act.Finish):
                self.finished = True
            elif isinstance(
                action, effects.Inspect | effects.Gate | effects.Aggregate | effects.Evaluate | effects.Checkpoint
            ):
                self.queue.append(action)

    def left_out(self, job: effects.Gate) -> tuple[str, ...]:
        """Which nodes the version is better without."""
        return ()

    def codec_of(self, task: AnyTask) -> int:
        """In which its contribution is written."""
        return 0

    def durable(self, number: int, node: str) -> bytes:
        """Return the bytes of the node's contribution that are put on disk."""
        return self.payloads[number]

    def until(self, condition: Callable[[], bool]) -> None:
        """Do one thing after another, until the condition holds."""
        while not condition():
            if self.queue:
                self.work()
            else:
                self.contribute(self.workers.turn())

    def work(self) -> None:
        """Do what the machine asked for first."""
        match job := self.queue.pop(0):
            case effects.Inspect():
                number = job.result.assignment
                found = self.server.inspect(self.payloads[number], job.result)
                self.handle(effects.Inspected(job.epoch, number, *found))
            case effects.Gate():
                self.handle(effects.Gated(job.epoch, job.version, self.left_out(job), 0.5))
            case effects.Aggregate():
                try:
                    made = self.server.aggregate(job.version, job.slots, self.ledger.read, job.rate)
                except VersionRefusedError as refusal:
                    self.handle(effects.Unmade(job.epoch, job.version, refusal.void, refusal.lost, refusal.reason))
                    return
                self.handle(effects.Aggregated(job.epoch, made.version, made.digest, made.delta))
            case effects.Evaluate():
                self.handle(effects.Evaluated(job.epoch, job.version, 1.0))
            case effects.Checkpoint():
                self.checkpoint(saved.encode(self.machine.state, self.now))
                self.handle(effects.Checkpointed(job.epoch, job.version))

    def contribute(self, node: str) -> None:
        """Let the node come (back), ask, and submit its oldest task; its update depends on its number alone."""
        self.now += 0.5
        tasks = self.workers.tasks[node]
        if node not in self.greeted:
            self.greeted.add(node)
            self.handle(ev.Admitted(node, f"key of {node}"))
            held = tuple(task.id for task in tasks)
            self.handle(ev.Received(node, Hello(PROTOCOL_VERSION, 5, 1, NodeProfile(10.0), 0, (), held, tuple(KINDS))))
        self.handle(ev.Received(node, RequestTask(0)))
        if not tasks:
            return
        task = tasks.pop(0)
        codec = self.codec_of(task)
        payload = self.server.codecs[codec].encode(0.1 * vector(task.id)).payload
        self.payloads[task.id] = bytes(payload)
        offered = contribution(task, payload=Blob(digest(task.id), len(payload)), codec=codec)
        self.handle(ev.Received(node, Offer(offered)))
        self.handle(ev.Arrived(node, task.id, len(payload)))

    def go_on(self, contributions: int) -> None:
        for _ in range(contributions):
            self.contribute(self.workers.turn())
            while self.queue:
                self.work()

    def get_ahead(self) -> int:
        """Make versions that are in no checkpoint yet; the newest that is in one."""
        self.go_on(14)
        while self.server.version < self.machine.state.record.checkpoint + 2:
            self.go_on(1)
        return self.machine.state.record.checkpoint

    def to_the_end(self) -> dict[int, str]:
        """Finish the run, and return the digest of each version."""
        while not self.finished:
            self.go_on(4)
        return replay(self.ledger).digests

    def kill(self) -> None:
        """Nothing is written that is not on disk already."""
        self.ledger.close()


def test_a_killed_run_makes_its_versions_again(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.get_ahead()
    version, parameters, residual = run.server.version, run.server.parameters, run.server.state()["residual"]
    assert version >= 3
    run.kill()
    again = Run(tmp_path)
    assert (again.server.version, again.server.digest) == (version, again.machine.state.newest.digest)
    assert torch.equal(again.server.parameters, parameters)
    assert torch.equal(again.server.state()["residual"], residual)
    assert again.found.digests[version] == again.server.digest
    again.kill()


def test_the_folded_state_is_the_one_that_was_lost(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.go_on(10)
    run.contribute("a")  # is being inspected
    run.kill()
    ledger = Ledger(tmp_path / "ledger.sqlite", tmp_path / "segments")
    assert replay(ledger).state == run.machine.state
    ledger.close()


def test_recovery_folds_only_the_rows_after_a_checkpoint(tmp_path: Path) -> None:
    """The state is the same, its places in the buffer included, and what comes after it is folded alone."""
    run = Run(tmp_path)
    for _ in range(8):
        run.go_on(3)
        folded, whole = replay(run.ledger, run.checkpoints), replay(run.ledger)
        assert folded.state == whole.state == run.machine.state
        assert folded.time == whole.time
    assert 0 < len(folded.digests) < len(whole.digests)
    assert run.machine.state.buffer.slots, "places in the open buffer are worth comparing"
    assert run.ledger.merged(0) == {
        version: tuple(held.assignment for slot in slots for held in slot.contributions)
        for version, slots in whole.slots.items()
    }
    run.kill()


@pytest.mark.parametrize("state", [b"", b"{}", b"\xc1", saved.encode(State(newest=Newest(10**6)), 0.0)])
def test_a_state_that_cannot_be_used_is_no_obstacle(tmp_path: Path, state: bytes) -> None:
    run = Run(tmp_path)
    run.go_on(10)
    run.checkpoint(state)
    run.kill()
    again = Run(tmp_path)
    assert again.server.version == run.server.version
    again.kill()


def test_a_run_with_many_crashes_is_the_run_without(tmp_path: Path) -> None:
    """A run that is killed after every few contributions, with work open or without, makes the same versions."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    whole = Run(tmp_path / "whole")
    expected = whole.to_the_end()
    whole.kill()
    broken = Run(tmp_path / "broken")
    for _ in range(100):
        broken.go_on(3)
        if broken.finished:
            break
        broken.kill()
        broken = Run(tmp_path / "broken", broken.workers)
    assert broken.finished
    assert replay(broken.ledger).digests == expected
    assert torch.equal(broken.server.average, whole.server.average)
    assert not torch.equal(whole.server.average, whole.server.parameters)
    broken.kill()


def test_a_version_that_was_being_made_is_made(tmp_path: Path) -> None:
    run = Run(tmp_path)
    while not any(isinstance(job, effects.Aggregate) for job in run.queue):
        if run.queue:
            run.work()
        else:
            run.contribute(run.workers.turn())
    closing = run.machine.state.closing
    assert closing is not None
    run.kill()
    again = Run(tmp_path)
    assert again.server.version == closing.version - 1
    while again.queue:
        again.work()
    assert again.server.version == again.machine.state.newest.version == closing.version
    again.kill()


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    run = Run(tmp_path)
    newest = tmp_path / "checkpoints" / f"v{run.get_ahead():06d}"
    version, parameters = run.server.version, run.server.parameters
    run.kill()
    spoil(newest / "parameters.safetensors")
    warnings: list[str] = []
    again = Run(tmp_path, run.workers, warnings.append)
    assert len(warnings) == 1
    assert newest.name in warnings[0]
    assert "damaged" in warnings[0]
    assert again.made[0].version <= int(newest.name[1:])
    assert again.server.version == version
    assert torch.equal(again.server.parameters, parameters)
    again.to_the_end()
    again.kill()


def test_without_a_good_checkpoint_there_is_a_clear_error(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.go_on(5)
    run.kill()
    for path in (tmp_path / "checkpoints").iterdir():
        spoil(path / "parameters.safetensors")
    with pytest.raises(CorruptionError, match=r"no checkpoint can be used \(v000"):
        Run(tmp_path)


def place_of(run: Run, assignment: int) -> tuple[Path, int]:
    """Return the file and the offset of a payload's first byte."""
    payload = run.ledger.read(assignment)
    for path in (run.ledger.path.parent / "segments").iterdir():
        if (offset := path.read_bytes().find(payload)) >= 0:
            return path, offset
    raise AssertionError(assignment)


def damage(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


def events(run: Run, kind: str) -> list[Noted]:
    return [d for _, d in run.ledger.replay() if isinstance(d, Noted) and d.kind == kind]


def test_a_made_version_that_lost_a_payload_says_what_to_restore(tmp_path: Path) -> None:
    run = Run(tmp_path)
    newest = tmp_path / "checkpoints" / f"v{run.get_ahead():06d}"
    (lost,) = (d for _, d in run.ledger.replay() if isinstance(d, VersionClosed) and d.version == run.server.version)
    path, offset = place_of(run, lost.contributions[0])
    run.kill()
    damage(path, offset)
    before = files(tmp_path)
    with pytest.raises(
        CorruptionError, match=rf"version {lost.version} cannot be made: .*{path.name} is damaged.* from a backup"
    ):
        Run(tmp_path)
    assert files(tmp_path) == before
    damage(path, offset)
    spoil(newest / "parameters.safetensors")
    assert Run(tmp_path).server.version == lost.version


@pytest.mark.parametrize("header", [False, True], ids=["payload", "header"])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_damaged_payload_of_no_version_yet_is_void(tmp_path: Path, closed: bool, header: bool) -> None:
    """The rule has too few nodes left, so the version is the one before.

    The controller judges no node for it, and the rows are done again.
    """
    run = Run(tmp_path)
    run.get_ahead()
    state = run.machine.state
    run.until(lambda: state.closing is not None if closed else bool(state.buffer.slots) and state.closing is None)
    slots = state.closing.slots if closed else [slot for by in state.buffer.slots.values() for slot in by.values()]
    hurt, version, parameters = slots[0].contributions[0][0], run.server.version, run.server.parameters
    path, offset = place_of(run, hurt)
    run.kill()
    damage(path, offset - HEADER_BYTES if header else offset)
    again = Run(tmp_path, run.workers)
    assert again.server.version == version
    assert torch.equal(again.server.parameters, parameters)
    again.until(lambda: again.machine.state.newest.version > version)
    void, *others = events(again, "voided")
    assert void.note.assignment == hurt
    assert path.name in void.note.reason
    assert not any(noted.note.judged for noted in (void, *others))
    assert not any(node.tally.refused for node in again.machine.state.nodes.values())
    digests = again.to_the_end()
    assert again.machine.state.totals.tokens >= again.settings.tokens
    assert hurt in {d.redo for _, d in again.ledger.replay() if isinstance(d, Assigned)}
    again.kill()
    last = Run(tmp_path)
    assert (last.finished, replay(last.ledger).digests) == (True, digests)
    last.kill()


class Liar(Run):
    """A run whose disk has other bytes than the inspected ones for every third of the first tasks."""

    robust = False
    wild = b"\0"

    def codec_of(self, task: AnyTask) -> int:
        """In which its contribution is written."""
        return 0

    def durable(self, number: int, node: str) -> bytes:
        return self.wild if number % 3 == 0 and number < 40 else super().durable(number, node)


@pytest.mark.parametrize("huge", [False, True], ids=["undecodable", "huge"])
def test_no_payload_on_the_ledger_can_stop_a_run_or_its_resume(tmp_path: Path, huge: bool) -> None:
    """Killed after every few contributions; a judged node pays for what it sent."""
    run = Liar(tmp_path)
    wild = bytes(run.server.codecs[0].encode(torch.full((SIZE,), 3e38)).payload) if huge else b"\0"
    run.wild = wild
    for _ in range(200):
        run.go_on(3)
        if run.finished:
            break
        workers = run.workers
        run.kill()
        run = Liar(tmp_path, workers)
        run.wild = wild
    assert run.finished
    assert bool(torch.isfinite(run.server.parameters).all())
    assert events(run, "voided")
    assert 0 < sum(noted.note.judged for noted in events(run, "voided")) <= run.machine.state.totals.refused
    assert run.machine.state.totals.tokens >= run.settings.tokens
    refused = {noted.note.version for noted in events(run, "version_refused")}
    assert refused <= replay(run.ledger).digests.keys() | {run.server.version}
    run.kill()
    again = Run(tmp_path)
    assert again.server.digest == run.server.digest
    assert again.machine.state == run.machine.state
    again.kill()


def test_a_past_that_cannot_be_reproduced_stops_the_controller(tmp_path: Path) -> None:
    run = Run(tmp_path)
    newest = run.get_ahead()
    run.kill()
    connection = sqlite3.connect(tmp_path / "ledger.sqlite")
    connection.execute(f"UPDATE versions SET rate = rate * 0.5 WHERE version = {newest + 1}")
    connection.commit()
    connection.close()
    with pytest.raises(CorruptionError, match=f"version {newest + 1} was made again, but hashes to"):
        Run(tmp_path)


def files(folder: Path) -> dict[Path, bytes]:
    """All that a run's past lies in, but for the ledger."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "ledger" not in path.name}


@pytest.mark.parametrize("whole", [False, True], ids=["older", "empty"])
def test_a_ledger_that_is_not_the_newest_is_refused_and_costs_nothing(tmp_path: Path, whole: bool) -> None:
    """The refusal repeats; when the right ledger is put back, the run continues as if nothing had happened."""
    run = Run(tmp_path)
    run.go_on(6)
    run.kill()
    ledger = tmp_path / "ledger.sqlite"
    copy = b"" if whole else ledger.read_bytes()
    later = Run(tmp_path, run.workers)
    later.get_ahead()
    version, parameters = later.server.version, later.server.parameters
    later.kill()
    right, before = ledger.read_bytes(), files(tmp_path)
    for _ in range(2):
        ledger.write_bytes(copy)
        with pytest.raises(CorruptionError, match=r"payloads that the ledger does not list: .* put back the ledger"):
            Run(tmp_path)
        assert files(tmp_path) == before
    ledger.write_bytes(right)
    again = Run(tmp_path, run.workers)
    assert again.server.version == version
    assert torch.equal(again.server.parameters, parameters)
    again.kill()


@pytest.mark.parametrize("whole", [False, True], ids=["older", "empty"])
def test_a_ledger_older_than_its_checkpoints_is_noticed(tmp_path: Path, whole: bool) -> None:
    """Without any payload that would tell."""
    run = Run(tmp_path)
    run.go_on(6)
    run.kill()
    copy = b"" if whole else (tmp_path / "ledger.sqlite").read_bytes()
    version = 0 if whole else run.server.version
    later = Run(tmp_path, run.workers)
    newest = later.get_ahead()
    later.kill()
    assert newest > version
    (tmp_path / "ledger.sqlite").write_bytes(copy)
    shutil.rmtree(tmp_path / "segments")
    with pytest.raises(CorruptionError, match=f"checkpoint of version {newest}, but the ledger ends at {version}"):
        Run(tmp_path)


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.to_the_end()
    state: Any = run.machine.state
    run.kill()
    again = Run(tmp_path)
    assert again.finished
    assert again.machine.state == state
    assert not [d for _, d in again.ledger.replay() if isinstance(d, Noted) and d.kind == "resumed"]
    again.kill()
