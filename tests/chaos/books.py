"""Nodes and controller of a simulated run, with books instead of bytes: the books say which node has what, and whether
it may."""

from __future__ import annotations

import hashlib
import math
import random
from collections import deque
from collections.abc import Sequence
from typing import Any

from barnraise.controller.state import effects
from barnraise.controller.state.effects import (
    Aggregate,
    Aggregated,
    ControllerEffect,
    Evaluated,
    Gains,
    Gate,
    Gated,
    Score,
    Scored,
    Unmade,
)
from barnraise.controller.state.events import Event
from barnraise.core.types import (
    AnyResult,
    AnyTask,
    Audit,
    Blob,
    Contribution,
    Evaluate,
    Flush,
    Inspection,
    News,
    PayloadResult,
)
from barnraise.emulation.conduct import HONEST, Conduct
from barnraise.emulation.costs import FLOPS, ControllerCosts, NodeCosts
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import Assign, Newer

from ..state_machine.bench import SHARDS
from ..state_machine.engine import MANIFEST, SKETCH, answer_to, digest

LOSS = 2.0
"""That the controller measures itself."""

FIXED = {MANIFEST.digest, *(shard.digest for shard in SHARDS)}
MOST_PAYLOADS = 3
"""Two contributions without an answer, and the residual at the end."""


def hashed(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class Truth:
    """The facts on which both sides must agree: each version's digest, and the acknowledgements of each node."""

    def __init__(self) -> None:
        self.digests = {0: digest(0)}
        self.before: dict[str, str] = {}  # a version's digest -> that of the version that its delta is of
        self.acknowledged: list[int] = []


class NodeBooks:
    """One node: its replica and its payloads. `size` is a payload's."""

    def __init__(self, name: str, truth: Truth, size: int, conduct: Conduct = HONEST) -> None:
        self.name, self.truth, self.size = name, truth, size
        self.costs, self.conduct = NodeCosts(100, "none", "none"), conduct
        self.lives = self.made = 0  # processes, and payloads
        self.start()

    def start(self) -> None:
        self.lives += 1
        self.replica: tuple[int, str] = (-1, "")
        self.held: set[str] = set()
        self.taken: deque[News] = deque()
        self.payloads: dict[int, str] = {}

    def fetched(self, blob: Blob, content: Buffer) -> None:
        self.held.add(blob.digest)

    def take(self, news: News) -> None:
        digests = {update.blob.digest for update in news.updates}
        assert digests <= self.held, "it takes what it does not have"
        self.held -= digests
        self.taken.append(news)

    def update(self, news: News) -> None:
        assert self.taken.popleft() == news
        for update in news.updates:
            fits = update.kind == "snapshot" or update.version == self.replica[0] + 1
            assert fits, f"{self.name} is at version {self.replica[0]}, and is given the delta to {update.version}"
            self.replica = update.version, update.parameters_digest
            assert self.is_version(*self.replica), "replicas differ"

    def is_version(self, version: int, found: str, task: AnyTask | None = None) -> bool:
        """Whether parameters that hash to `found` are that version, of the run that a task is of."""
        return self.truth.digests[version] == found

    def begin(self, task: AnyTask) -> None:
        versions = [update.version for update in task.undoes]
        first = task.train.base if isinstance(task, Audit) else task.base
        first = task.version if isinstance(task, Evaluate) else first
        assert versions == list(range(first + 1, task.base + 1)), "it does not lead back to where the work began"
        back = {update.blob.digest for update in task.undoes}
        assert back <= self.held, "it takes back what it does not have"
        self.held -= back

    def run(self, task: AnyTask, steps: int, news: Sequence[tuple[int, News]]) -> AnyResult | None:
        if not isinstance(task, Flush):
            version, found = self.replica
            assert version == task.base or (version > task.base and not task.exact), "it trains from another version"
            assert self.is_version(version, found, task), f"{self.name} trains {task.id} from another version {version}"
        for _, late in news:
            self.update(late)
        assert not task.exact or steps < task.steps or self.replica[0] == task.base
        steps = 0 if task.exact and steps < task.steps else steps
        changes: dict[str, Any] = {"steps": steps}
        if task.contributes:
            self.made += 1
            self.payloads[task.id] = hashed(self.name, self.lives, task.id, self.made)
            assert len(self.payloads) <= MOST_PAYLOADS
            changes["payload"] = Blob(self.payloads[task.id], self.size)
        if isinstance(task, Evaluate) and task.id % 7 == 0:
            changes["loss"] = 9.0  # which another owner contradicts
        return answer_to(task, **changes)

    def payload(self, assignment: int) -> Buffer:
        return self.payloads[assignment].encode()

    def settle(self, assignment: int, accepted: bool) -> None:
        self.payloads.pop(assignment, None)
        if accepted:
            self.truth.acknowledged.append(assignment)


class ControllerBooks:
    """The controller: what it publishes, and whose payloads are in its custody, durable, and in a version.

    A share of the payloads is `spoiled`: some are seen to be as they come, others only when their version is made."""

    def __init__(self, truth: Truth, rng: random.Random, *, delta: int, spoiled: float) -> None:
        self.truth, self.rng, self.delta, self.spoiled = truth, rng, delta, spoiled
        self.costs = ControllerCosts(
            100, "none", "none", model_size=100, robust=False, evaluation_tokens=100, row_tokens=10, flops=FLOPS
        )
        self.deltas: set[str] = set()
        self.kept: dict[str, set[str]] = {}  # the files that the newest tasks of nodes name
        self.offered: dict[tuple[str, int], bytes] = {}
        self.durable: set[int] = set()
        self.merged: set[int] = set()
        self.newest = 0

    def files(self) -> tuple[Blob, ...]:
        return SHARDS

    def serve(self, blob: Blob) -> Buffer | None:
        kept = {*FIXED, *self.deltas, self.truth.digests[self.newest]}.union(*self.kept.values())
        return b"content" if blob.digest in kept else None

    def hold(self, node: str, message: Assign | Newer) -> None:
        earlier = self.kept.get(node, set()) if isinstance(message, Newer) else set()
        self.kept[node] = earlier | set(message.digests)

    def release(self, digests: tuple[str, ...]) -> None:
        self.deltas -= set(digests)

    def inspect(
        self, node: str, result: PayloadResult, payload: Buffer, depth: Inspection = "full"
    ) -> tuple[float, str]:
        assert bytes(payload).decode() == result.payload.digest, "other bytes than were offered"
        self.offered[node, result.assignment] = bytes(payload)
        return (math.nan if self.rng.random() < self.spoiled else 1.0), ""

    def sketch(self, contribution: Contribution, payload: Buffer, seed: int) -> bytes:
        return SKETCH

    def accept(self, node: str, assignment: int) -> None:
        del self.offered[node, assignment]  # which is here, and was inspected
        assert assignment not in self.durable
        self.durable.add(assignment)

    def discard(self, node: str, assignment: int) -> None:
        self.offered.pop((node, assignment), None)

    def carry_out(self, effect: ControllerEffect) -> Event:
        match effect:
            case Score():
                made = effect.contribution.assignment
                assert made in self.durable
                gains = Gains(0.2, 0.1, 3.0 if self.rng.random() < 0.9 else 0.0)
                return Scored(effect.epoch, made, self.newest, gains)
            case Gate():
                nodes = sorted({slot.node for slot in effect.slots if slot.contributions})
                chosen = tuple(self.rng.sample(nodes, self.rng.randint(0, effect.most)))
                return Gated(effect.epoch, effect.version, chosen, 0.1)
            case Aggregate():
                return self.aggregate(effect)
            case effects.Evaluate():
                return Evaluated(effect.epoch, effect.version, LOSS)
        raise AssertionError(f"no answer to {effect}: add a case")

    def aggregate(self, action: Aggregate) -> Event:
        numbers = [number for slot in action.slots for number, *_ in slot.contributions]
        assert set(numbers) <= self.durable, "a version of what no disk has"
        assert not self.merged & set(numbers), "a contribution is in two versions"
        assert action.version == self.newest + 1
        void = {number: "cannot be decoded" for number in numbers if self.rng.random() < self.spoiled / 2}
        if void:
            return Unmade(action.epoch, action.version, void, {})
        self.merged |= set(numbers)
        self.newest = action.version
        made = hashed(self.truth.digests[action.version - 1], action.slots, action.rate)
        self.truth.before[made] = self.truth.digests[action.version - 1]
        self.truth.digests[action.version] = made
        blob = Blob(hashed(made), self.delta)
        self.deltas.add(blob.digest)
        return Aggregated(action.epoch, action.version, made, blob)

    def restarted(self) -> None:
        """Another process serves: of the deltas it knows none, and no task of its own names a blob."""
        self.deltas, self.kept, self.offered = set(), {}, {}
