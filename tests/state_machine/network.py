"""Controller and workers together on a small network under virtual time: delays, lost connections, crashes.

Both shells do what the real ones do, with books instead of bytes: decisions are durable when their group commit ends,
nothing is sent before, messages of one connection arrive in order, and what is under way when a connection or a process
ends is lost.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import random
from collections.abc import Callable
from typing import Any

from barnraise.controller.machine import Controller
from barnraise.controller.state import actions as ca
from barnraise.controller.state import effects
from barnraise.controller.state import events as ce
from barnraise.controller.state.fold import apply
from barnraise.controller.state.settings import EngineSettings
from barnraise.controller.state.state import State
from barnraise.core.types import AnyTask, Blob, Contribution, Flush, NodeProfile, Update
from barnraise.ledger.decisions import Decision, Judged, VersionMade
from barnraise.wire.messages import Hello, Identify, Message, Offer, SendPayload
from barnraise.worker import actions as wa
from barnraise.worker import events as we
from barnraise.worker.machine import Worker

from .bench import SHARDS
from .engine import MANIFEST, SKETCH, Account, answer_to, digest, own_rows, stored

LOSS = 2.0
"""That the controller measures itself."""

FIXED = {MANIFEST.digest, *(shard.digest for shard in SHARDS)}


class Clock:
    """Virtual time: what happens next happens now."""

    def __init__(self) -> None:
        self.now, self._count = 0.0, 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, time: float, call: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (max(time, self.now), self._count, call, arguments))

    def step(self) -> None:
        self.now, _, call, arguments = heapq.heappop(self._heap)
        call(*arguments)


class Disk:
    """The storage that survives a controller: the journal and the payloads of accepted contributions."""

    def __init__(self, settings: EngineSettings) -> None:
        self.journal: list[Decision] = []
        self.payloads: set[int] = set()
        self.account = Account(settings)
        self.digests = {0: digest(0)}

    def commit(self, steps: list[Decision | effects.Evaluate], payloads: set[int]) -> None:
        """Decisions, and where among them the controller began to measure a version itself."""
        self.payloads |= payloads
        for step in steps:
            if isinstance(step, effects.Evaluate):
                self.account.measured.here, self.account.last_loss = True, LOSS
                continue
            decision = stored(step)
            self.journal.append(decision)
            self.account.add(decision)
            if isinstance(decision, VersionMade):
                assert self.digests.setdefault(decision.version, decision.digest) == decision.digest

    def fold(self) -> State:
        state = State()
        for decision in self.journal:
            apply(state, decision)
        return state


class Host:
    """One incarnation of the controller's process."""

    def __init__(self, network: Network, epoch: int) -> None:
        self.network, self.clock, self.disk = network, network.clock, network.disk
        self.machine = Controller(network.settings, self.disk.fold(), epoch)
        self.alive, self.committing, self.wakes_at = True, False, math.inf
        self.inbox: list[ce.Event] = []
        self.peers: dict[str, int] = {}
        self.uploads: dict[tuple[str, int], bool] = {}  # that were asked for
        self.payloads: dict[tuple[str, int], str] = {}
        self.deltas: set[str] = set()
        self.snapshots = [self.machine.state.newest.digest or digest(0)]
        self.batch: tuple[list[Decision | effects.Evaluate], set[int]] = ([], set())
        self.disk.account.measured.restarted()

    def begin(self) -> None:
        fresh = not self.machine.state.newest.digest
        now = self.clock.now
        self._commit(self.machine.start(digest(0), now) if fresh else self.machine.resume(now, grace=6.0))

    def hears(self, node: Process, connection: int, message: Message) -> None:
        name = node.name
        if isinstance(message, Hello):
            self.peers[name] = connection
        elif self.peers.get(name) != connection:
            self.network.down(node, connection, Identify())
            return
        self.post(ce.Received(name, message))

    def hears_payload(self, node: Process, connection: int, contribution: Contribution) -> None:
        """A payload is complete; the controller drops a payload that it does not wait for."""
        key = node.name, contribution.assignment
        if self.peers.get(node.name) == connection and self.uploads.pop(key, None):
            self.payloads[key] = contribution.payload.digest
            self.post(ce.Arrived(*key, contribution.payload.num_bytes))

    def post(self, event: ce.Event) -> None:
        if self.alive:
            self.inbox.append(event)
            self.turn()

    def turn(self) -> None:
        """Handle all there is as one batch, unless the last one is still being committed."""
        if not self.alive or self.committing:
            return
        events, self.inbox = self.inbox, []
        actions: list[ca.Action] = []
        for event in events:
            actions += self.machine.handle(event, self.clock.now)
        if self.machine.deadline <= self.clock.now:
            actions += self.machine.handle(ce.Tick(), self.clock.now)
            assert self.machine.deadline > self.clock.now
        self._commit(actions)

    def _commit(self, actions: list[ca.Action]) -> None:
        steps = [getattr(action, "decision", action) for action in actions]
        decisions = [step for step in steps if isinstance(step, Decision | effects.Evaluate)]
        accepted = [d for d in decisions if isinstance(d, Judged) and d.brings]
        for verdict in accepted:
            assert self.payloads.pop((verdict.node, verdict.assignment)) == verdict.claim.digest
        self.batch = decisions, {verdict.assignment for verdict in accepted}
        self.committing = True
        self.clock.at(self.clock.now + self.network.rng.uniform(0.0, 0.05) * bool(decisions), self._durable, actions)

    def _durable(self, actions: list[ca.Action]) -> None:
        if not self.alive:
            return
        self.disk.commit(*self.batch)
        self.committing, self.batch = False, ([], set())
        for action in actions:
            self._carry_out(action)
        if self.inbox:
            self.turn()
        self._wake()

    def _wake(self) -> None:
        """Take a turn at the machine's deadline, should nothing happen before."""
        if self.machine.deadline < self.wakes_at:
            self.wakes_at = self.machine.deadline
            self.clock.at(self.wakes_at, self._woken)

    def _woken(self) -> None:
        self.wakes_at = math.inf
        if self.machine.deadline <= self.clock.now:
            self.turn()
        else:
            self._wake()

    def crash(self) -> None:
        """The batch in flight may have reached the disk, but no node gets an answer about it."""
        self.alive = False
        if self.committing and self.network.rng.random() < 0.5:
            self.disk.commit(*self.batch)

    def _carry_out(self, action: ca.Action) -> None:
        rng, now = self.network.rng, self.clock.now
        match action:
            case ca.Send():
                node = self.network.processes[action.node]
                if action.node in self.peers:
                    self.network.down(node, self.peers[action.node], action.message)
            case ca.Receive():
                key = action.node, action.result.assignment
                if key not in self.payloads:  # else the machine has not heard yet that it is here
                    self.uploads[key] = True
                    self._carry_out(ca.Send(action.node, SendPayload(action.result.assignment, 0)))
            case effects.Inspect():
                assert self.payloads[action.node, action.result.assignment] == action.result.payload.digest
                norm = math.nan if rng.random() < self.network.spoiled else 1.0
                sketch, number = SKETCH if action.seed else b"", action.result.assignment
                self._later(rng.uniform(0, 0.2), effects.Inspected(action.epoch, number, norm, sketch=sketch))
            case ca.Discard():
                self.uploads.pop((action.node, action.assignment), None)
                self.payloads.pop((action.node, action.assignment), None)
            case effects.Gate():
                nodes = sorted({slot.node for slot in action.slots if slot.contributions})
                out = tuple(rng.sample(nodes, rng.randint(0, action.most)))
                self._later(rng.uniform(0, 0.5), effects.Gated(action.epoch, action.version, out, 0.1))
            case effects.Aggregate():
                numbers = [number for slot in action.slots for number, *_ in slot.contributions]
                assert set(numbers) <= self.disk.payloads
                story = repr((self.disk.digests[action.version - 1], action.slots, action.rate))
                made = hashlib.sha256(story.encode()).hexdigest()
                delta = Blob(hashlib.sha256(made.encode()).hexdigest(), rng.choice([60, 90, 400]))
                self.clock.at(now + rng.uniform(0, 0.5), self._made, action, made, delta)
            case effects.Evaluate():
                self._later(rng.uniform(0, 2.0), effects.Evaluated(action.epoch, action.version, LOSS))
            case effects.Score():
                assert action.contribution.assignment in self.disk.payloads
                gains = effects.Gains(0.2, 0.1, rng.choice([3.0, 3.0, 0.0])) if rng.random() < 0.9 else None
                self._later(rng.uniform(0, 2.0), effects.Scored(action.epoch, action.contribution.assignment, 0, gains))
            case effects.Checkpoint():
                self._later(rng.uniform(0, 2.0), effects.Checkpointed(action.epoch, action.version))
            case effects.ControllerEffect():
                raise AssertionError(f"no answer to {action}: add a case")
            case ca.Release():
                self.deltas -= set(action.digests)
            case ca.Finish():
                self.alive = False
                self.network.finished = action

    def _later(self, seconds: float, event: ce.Event) -> None:
        self.clock.at(self.clock.now + seconds, self.post, event)

    def _made(self, action: effects.Aggregate, made: str, delta: Blob) -> None:
        self.deltas.add(delta.digest)
        self.snapshots = [*self.snapshots[-1:], made]
        self.post(effects.Aggregated(action.epoch, action.version, made, delta))

    def keeps(self, blob: Blob) -> bool:
        return blob.digest in {*FIXED, *self.deltas, *self.snapshots}


class Process:
    """One incarnation of a worker's process."""

    def __init__(self, network: Network, name: str, session: int, speed: float, latency: float) -> None:
        self.network, self.clock, self.name = network, network.clock, name
        self.speed, self.latency = speed, latency
        self.machine = Worker(session)
        self.alive, self.frozen_until = True, 0.0
        self.connection = network.connect()
        self.replica: tuple[int, str] = (-1, "")
        self.fetching: dict[str, Blob] = {}
        self.cut: set[int] = set()
        self.uploading = 0
        self.payloads: set[int] = set()

    def begin(self) -> None:
        self.network.enrol(self)
        self._carry_out(self.machine.start(self.clock.now))
        self._tick()

    def handle(self, event: we.Event) -> None:
        if not self.alive:
            return
        if self.clock.now < self.frozen_until:
            self.clock.at(self.frozen_until, self.handle, event)
            return
        self._carry_out(self.machine.handle(event, self.clock.now))
        assert len(self.payloads) <= 3  # two contributions, and the residual at the end
        assert self.machine.quit or self.payloads == self.machine.outgoing.pending.keys()

    def _tick(self) -> None:
        if self.alive and not self.machine.quit:
            if self.machine.deadline <= self.clock.now:
                self.handle(we.Tick())
            self.clock.at(max(self.machine.deadline, self.clock.now + 0.05), self._tick)

    def _carry_out(self, actions: list[wa.Action]) -> None:
        for action in actions:
            match action:
                case wa.Send():
                    self.network.up(self, action.message)
                case wa.Offer():
                    self.network.up(self, Offer(action.result))
                case wa.Upload():
                    self.uploading = action.result.assignment
                    delay = self.network.rng.choice([0.01, 0.5, 0.5, 4.0, 20.0])
                    self.clock.at(self.clock.now + delay, self._uploaded, self.connection, action.result)
                case wa.CancelUpload():
                    self.uploading = 0
                case wa.Fetch():
                    self.fetching[action.blob.digest] = action.blob
                    self.ask(action.blob)
                case wa.Prepare():
                    own = own_rows(self.name) if self.network.settings.tasks.needs.sites else None
                    prepared = we.Prepared(SHARDS, NodeProfile(self.speed), own=own)
                    self.clock.at(self.clock.now + 1.0, self.handle, prepared)
                case wa.ApplyUpdates():
                    self.clock.at(self.clock.now + 0.05, self._apply, action.news.updates)
                case wa.StartTask():
                    self._train(action)
                case wa.CutShort():
                    running = self.machine.tasks.running
                    assert running is not None
                    self.cut.add(running.task.id)
                case wa.Settle():
                    self.payloads.remove(action.assignment)
                    if action.accepted:
                        self.network.acknowledged.append(action.assignment)
                case wa.Quit():
                    self.network.die(self)

    def _uploaded(self, connection: int, contribution: Contribution) -> None:
        """The last byte has left, unless another upload took the place of this one."""
        if self.alive and self.uploading == contribution.assignment:
            self.network.up_payload(self, connection, contribution)

    def ask(self, blob: Blob) -> None:
        """Ask for a blob until there is an answer."""
        if self.alive and blob.digest in self.fetching:
            delay = self.network.delay(self)
            self.clock.at(self.clock.now + delay, self.network.fetch, self, self.connection, blob)
            self.clock.at(self.clock.now + 3.0 + 2 * self.latency, self.ask, blob)

    def fetched(self, blob: Blob, kept: bool) -> None:
        if self.alive and self.fetching.pop(blob.digest, None):
            self.handle(we.Fetched(blob.digest, blob.num_bytes) if kept else we.FetchFailed(blob.digest))

    def _apply(self, updates: tuple[Update, ...]) -> None:
        for update in updates:
            fits = update.kind == "snapshot" or update.version == self.replica[0] + 1
            broken = not fits or self.network.rng.random() < self.network.spoiled
            self.replica = (-1, "") if broken else (update.version, update.parameters_digest)
            if broken:
                break
        self.handle(we.Updated(self.replica[0]))

    def _train(self, action: wa.StartTask) -> None:
        task = action.task
        if isinstance(task, Flush):
            self.clock.at(self.clock.now + 0.01, self._trained, task, 0.0)
            return
        version, digest = self.replica
        assert version == task.base or (version > task.base and not task.exact)
        assert digest == self.network.disk.digests[version]
        step = task.effort / task.steps / self.speed
        if 0 < action.ask_at <= task.steps:
            self.clock.at(self.clock.now + step * action.ask_at, self.handle, we.Nearly(task.id))
        self.clock.at(self.clock.now + step * task.steps, self._trained, task, step)

    def _trained(self, task: AnyTask, step: float) -> None:
        if not self.alive:
            return
        if self.clock.now < self.frozen_until:
            self.clock.at(self.frozen_until, self._trained, task, step)
            return
        assert not task.exact or task.id in self.cut or self.replica[0] == task.base
        steps = (0 if task.exact else 1) if task.id in self.cut else task.steps
        self.payloads.add(task.id)
        story = f"{self.name} {self.machine.contact.session} {task.id}"
        changes: dict[str, Any] = {"steps": steps, "seconds": step * steps}
        if task.contributes:
            changes["payload"] = Blob(hashlib.sha256(story.encode()).hexdigest(), 420)
        self.handle(we.TaskDone(answer_to(task, **changes)))


class Network:
    """Everything, driven by one seed. Trouble ends at `calm`; from then on the run has to come to its end."""

    def __init__(self, settings: EngineSettings, seed: str, nodes: int) -> None:
        self.settings, self.rng, self.clock = settings, random.Random(seed), Clock()
        self.disk = Disk(settings)
        self.acknowledged: list[int] = []
        self.finished: ca.Finish | None = None
        self.spoiled = self.rng.choice([0.0, 0.0, 0.03])
        self.trouble = self.rng.choice([0.5, 1.5, 4.0])  # seconds from one to the next, on average
        self.calm = self.rng.uniform(10.0, 60.0)
        self._connections = self._sessions = self._epoch = 0
        self._arrivals: dict[tuple[str, int], float] = {}
        self.processes: dict[str, Process] = {}
        self.host: Host | None = None
        self._start_host()
        for index in range(nodes):
            name = f"node{index}"
            speed, latency = self.rng.choice([2.0, 6.0, 20.0]), self.rng.choice([0.01, 0.1, 0.1, 1.2])
            self.processes[name] = Process(self, name, self._session(), speed, latency)
            self.clock.at(self.rng.uniform(0, 3), self.processes[name].begin)
        self.clock.at(3.0, self._make_trouble)

    def run(self, limit: int = 100_000) -> None:
        for _ in range(limit):
            if self.finished is not None:
                return
            self.clock.step()
        raise AssertionError(f"not finished at {self.clock.now:.0f} s")

    def stop(self) -> None:
        """Somebody presses Ctrl-C, again should the controller be down."""
        if self.host is None:
            self.clock.at(self.clock.now + 1.0, self.stop)
        else:
            self.host.post(ce.StopRequested("asked to stop"))

    def connect(self) -> int:
        self._connections += 1
        return self._connections

    def enrol(self, node: Process) -> None:
        if self.host is not None:
            self.host.post(ce.Admitted(node.name, f"key of {node.name}"))

    def delay(self, node: Process) -> float:
        return node.latency * self.rng.uniform(0.5, 1.5)

    def _in_order(self, way: str, connection: int, delay: float) -> float:
        key = (way, connection)
        self._arrivals[key] = max(self._arrivals.get(key, 0.0), self.clock.now + delay)
        return self._arrivals[key]

    def up(self, node: Process, message: Message, extra: float = 0.0) -> None:
        time = self._in_order("up", node.connection, self.delay(node) + extra)
        self.clock.at(time, self._arrive_up, node, node.connection, message)

    def _arrive_up(self, node: Process, connection: int, message: Message) -> None:
        whole = node.connection == connection and self.processes[node.name] is node
        if whole and self.host is not None:
            self.host.hears(node, connection, message)

    def up_payload(self, node: Process, connection: int, contribution: Contribution) -> None:
        time = self._in_order("up", connection, self.delay(node))
        self.clock.at(time, self._payload_up, node, connection, contribution)

    def _payload_up(self, node: Process, connection: int, contribution: Contribution) -> None:
        if node.connection == connection and self.processes[node.name] is node and self.host is not None:
            self.host.hears_payload(node, connection, contribution)

    def down(self, node: Process, connection: int, message: Message) -> None:
        time = self._in_order("down", connection, self.delay(node))
        self.clock.at(time, self._arrive_down, node, connection, message)

    def _arrive_down(self, node: Process, connection: int, message: Message) -> None:
        if node.connection == connection:
            node.handle(we.Received(message))

    def fetch(self, node: Process, connection: int, blob: Blob) -> None:
        if self.host is not None and node.connection == connection and node.alive:
            kept = self.host.keeps(blob)
            self.clock.at(self.clock.now + self.delay(node), node.fetched, blob, kept)

    def _session(self) -> int:
        self._sessions += 1
        return self._sessions

    # Trouble

    def _make_trouble(self) -> None:
        if self.clock.now < self.calm:
            kinds = [self._crash_host, self._cut, self.die, self._freeze, self._ask_to_leave, self._announce_death]
            self.rng.choices(kinds, [2, 4, 3, 2, 1, 1])[0](self.processes[self.rng.choice(sorted(self.processes))])
            self.clock.at(self.clock.now + self.rng.expovariate(1 / self.trouble), self._make_trouble)

    def _start_host(self) -> None:
        self._epoch += 1
        self.host = Host(self, self._epoch)
        self.host.begin()

    def _crash_host(self, node: Process) -> None:
        if self.host is not None:
            self.host.crash()
            self.host = None
            for process in self.processes.values():
                process.connection = self.connect()
            self.clock.at(self.clock.now + self.rng.choice([0.1, 1.0, 8.0]), self._start_host)

    def _cut(self, node: Process) -> None:
        node.connection = self.connect()

    def die(self, node: Process) -> None:
        """The process ends; another one takes its place after a while."""
        node.alive = False
        node.connection = self.connect()
        self.clock.at(self.clock.now + self.rng.uniform(0, 8), self._restart, node)

    def _announce_death(self, node: Process) -> None:
        self.die(node)
        if self.host is not None:
            self.host.post(ce.Lost(node.name, "killed"))

    def _restart(self, dead: Process) -> None:
        if self.processes[dead.name] is dead:
            process = Process(self, dead.name, self._session(), dead.speed, dead.latency)
            self.processes[dead.name] = process
            process.begin()

    def _freeze(self, node: Process) -> None:
        node.frozen_until = self.clock.now + self.rng.choice([0.5, 3.0, 9.0])

    def _ask_to_leave(self, node: Process) -> None:
        node.handle(we.LeaveRequested("asked to leave"))
