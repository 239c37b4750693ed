"""A controller of a masked run under test, with workers and trustees that answer as a test says, without tensors."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from zmq.utils import z85

from barnraise.controller.machine import Controller
from barnraise.controller.state import effects
from barnraise.controller.state import events as ev
from barnraise.controller.state.actions import Action, Journal, Receive, Send
from barnraise.controller.state.fold import apply
from barnraise.controller.state.invariants import validate
from barnraise.controller.state.settings import MaskSettings, ProtectionSettings
from barnraise.controller.state.state import State
from barnraise.controller.versions.unmasking import Unmasking
from barnraise.core.types import (
    KINDS,
    AnyResult,
    AnyTask,
    Blob,
    Confirm,
    Confirmed,
    Contribution,
    Endorse,
    Endorsed,
    Masked,
    NodeProfile,
    Unmask,
    Unmasked,
    Vet,
    Vetted,
)
from barnraise.ledger.decisions import Decision, Noted
from barnraise.trust.signatures import Signer, endorsed, signed
from barnraise.wire.messages import PROTOCOL_VERSION, Assign, Hello, Included, Message, Offer, RequestTask

from .state_machine.engine import digest, engine_settings

MASKS = MaskSettings(
    trustees=4,
    colluding=1,
    least=2,
    most=8,
    patience=60.0,
    most_tokens=12,
    sum_bytes=100,
)


def masked_settings(nodes: int) -> Any:
    """Return the settings of a masked run whose versions have updates of this number of nodes."""
    plain = engine_settings(asynchronous=True, buffer_size=nodes, tokens=10**6)
    return replace(plain, payloads=replace(plain.payloads, protection=ProtectionSettings(masks=MASKS)))


SETTINGS = masked_settings(2)
RUN = SETTINGS.run
WORKERS, TRUSTEES = ("ann", "bob"), ("t1", "t2", "t3", "t4")
SIGNERS = {name: Signer(name.encode().ljust(32, b".")) for name in (*WORKERS, *TRUSTEES, "t5", "cy", "di", "eve")}


def key_of(name: str) -> str:
    """A key in the form of a transport's."""
    return z85.encode(name.encode().ljust(32, b".")).decode()


class MaskedRun:
    """The machine, its journal, and the open tasks of each node; time passes as a test says."""

    def __init__(self, settings: Any = SETTINGS, workers: tuple[str, ...] = WORKERS) -> None:
        self.settings, self.now, self.epoch = settings, 0.0, 1
        self.machine = Controller(settings)
        self.journal: list[Decision] = []
        self.tasks: dict[str, dict[int, AnyTask]] = {}
        self.jobs: list[effects.ControllerEffect] = []
        self.said: dict[str, list[Message]] = {}
        self.session = 0
        self.take(self.machine.start(digest(0), 0.0))
        for name in TRUSTEES:
            self.join(name, "trustee")
        for name in workers:
            self.join(name, "worker")

    @property
    def state(self) -> State:
        return self.machine.state

    def handle(self, event: ev.Event) -> list[Action]:
        return self.take(self.machine.handle(event, self.now))

    def take(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            if isinstance(action, Journal):
                self.journal.append(action.decision)
            if isinstance(action, Send):
                self.said.setdefault(action.node, []).append(action.message)
            if isinstance(action, Send) and isinstance(action.message, Assign):
                self.tasks.setdefault(action.node, {})[action.message.task.id] = action.message.task
            elif isinstance(action, effects.ControllerEffect):
                self.jobs.append(action)
        validate(self.state)
        return actions

    def join(self, name: str, role: str = "worker") -> None:
        if name not in self.state.nodes:
            self.handle(ev.Admitted(name, key_of(name), signer=SIGNERS[name].public, role=role))
        self.session += 1
        self.tasks[name] = {}
        told = Hello(PROTOCOL_VERSION, self.session, 1, NodeProfile(100.0), have=0, kinds=tuple(KINDS))
        self.handle(ev.Received(name, told))

    def leave(self, name: str) -> None:
        self.tasks[name] = {}
        self.handle(ev.Lost(name, "gone"))

    def ask(self, name: str) -> None:
        self.handle(ev.Received(name, RequestTask(have=self.state.newest.version)))

    def answer(self, name: str, result: AnyResult) -> list[Action]:
        """Submit a result, and its payload where it is asked for."""
        self.tasks[name].pop(result.assignment, None)
        actions = self.handle(ev.Received(name, Offer(result)))
        for action in actions:
            if isinstance(action, Receive):
                assert isinstance(result, Contribution | Unmasked)
                actions += self.handle(ev.Arrived(name, result.assignment, result.payload.num_bytes))
                self.jobs = [job for job in self.jobs if not isinstance(job, effects.Inspect)]
                actions += self.handle(effects.Inspected(self.epoch, result.assignment, 0.0))
        return actions

    def contribute(self, name: str) -> int:
        """Ask for a task and submit its masked update; return its assignment."""
        self.ask(name)
        return self.submit(name)

    def submit(self, name: str) -> int:
        """Submit the masked update of the node's oldest task; return its assignment."""
        task = self.take_task(name, Masked)
        blob = Blob(digest(1000 + task.id), 400)
        made = Contribution.of(task, blob, codec=0, steps=task.local_steps, loss=1.0, seconds=1.0)
        self.answer(name, signed(RUN, name, made, SIGNERS[name]))
        return task.id

    def job(self, kind: type[Any]) -> Any:
        """Take the one waiting effect of a kind."""
        (found,) = [job for job in self.jobs if isinstance(job, kind)]
        self.jobs.remove(found)
        return found

    def list_it(
        self, void: dict[int, str] | None = None, lost: dict[int, str] | None = None, *, vetted: bool = True
    ) -> list[Action]:
        """Make the list, and let all trustees accept its entries where it is to be `vetted`."""
        asked = self.job(effects.ListMembers)
        if void or lost:
            return self.handle(effects.Listed(self.epoch, asked.version, void=void or {}, lost=lost or {}))
        shares = tuple(tuple(b"share" for _ in asked.members) for _ in asked.committee)
        actions = self.handle(effects.Listed(self.epoch, asked.version, list_of(asked), b"the list", shares, 1))
        for name in TRUSTEES if vetted else ():
            if self.has(name, Vet):
                actions += self.vet(name)
        return actions

    def take_task(self, name: str, kind: type[Any]) -> Any:
        return next(task for task in self.tasks[name].values() if isinstance(task, kind))

    def vet(self, name: str, *faulty: int, reason: str = "", unlisted: tuple[int, ...] = ()) -> list[Action]:
        task = self.take_task(name, Vet)
        told = {"reason": reason, "faulty": faulty, "unlisted": unlisted, "steps": 0, "loss": 0.0, "seconds": 0.1}
        return self.answer(name, Vetted(assignment=task.id, base=task.base, **told))

    def endorse(
        self, name: str, *, reason: str = "", forged: bool = False, faulty: tuple[int, ...] = ()
    ) -> list[Action]:
        task, asked = self.take_task(name, Endorse), self.machine.parts[Unmasking].list
        digest = asked.listed.digest if asked is not None else ""
        signature = "" if reason else SIGNERS["eve" if forged else name].sign(endorsed(RUN, name, digest))
        told = {"endorsement": signature, "reason": reason, "faulty": faulty}
        return self.answer(name, Endorsed(assignment=task.id, base=task.base, steps=0, loss=0.0, seconds=0.1, **told))

    def confirm(self, name: str, *, wrong: bool = False) -> list[Action]:
        task = self.take_task(name, Confirm)
        told = {"digest": sums_of(task, wrong), "steps": 0, "loss": 0.0, "seconds": 0.1}
        return self.answer(name, Confirmed(assignment=task.id, base=task.base, **told))

    def unmask(self, name: str, *, wrong: bool = False) -> list[Action]:
        task = self.take_task(name, Unmask)
        blob = Blob(sums_of(task, wrong), MASKS.sum_bytes)
        made = Unmasked(assignment=task.id, base=task.base, steps=0, loss=0.0, seconds=0.1, payload=blob)
        return self.answer(name, signed(RUN, name, made, SIGNERS[name]))

    def answer_all(self, liar: str = "") -> None:
        """Let all trustees answer all that they are asked; the liar sums wrong masks."""
        while asked := [name for name in TRUSTEES if self.tasks[name]]:
            for name in asked:
                task = next(iter(self.tasks[name].values()))
                if isinstance(task, Vet | Endorse):
                    (self.vet if isinstance(task, Vet) else self.endorse)(name)
                else:
                    (self.confirm if isinstance(task, Confirm) else self.unmask)(name, wrong=name == liar)

    def make(self, left_out: dict[tuple[int, ...], str] | None = None) -> list[Action]:
        asked = self.job(effects.Aggregate)
        delta, told = Blob(digest(5000 + asked.version), 9), left_out or {}
        return self.handle(effects.Aggregated(self.epoch, asked.version, digest(asked.version), delta, left_out=told))

    def pass_time(self, seconds: float, *silent: str) -> list[Action]:
        """Let time pass; all nodes but the `silent` are heard."""
        self.now += seconds
        for name, node in self.state.nodes.items():
            if node.live and name not in silent:
                self.handle(ev.Heard(name))
        return self.handle(ev.Tick())

    def crash(self) -> list[Action]:
        """Start another controller from the journal; every node comes back without its tasks."""
        state = State()
        for decision in self.journal:
            apply(state, decision)
        validate(state)
        self.epoch += 1
        self.machine, self.jobs = Controller(self.settings, state, epoch=self.epoch), []
        actions = self.take(self.machine.resume(self.now, 10.0))
        for name in [name for name, node in self.state.nodes.items() if node.live]:
            self.join(name)
        return actions

    def notes(self, kind: type[Any]) -> list[Any]:
        return [d.note for d in self.journal if isinstance(d, Noted) and isinstance(d.note, kind)]

    def proofs(self, name: str) -> list[Included]:
        return [message for message in self.said.get(name, ()) if isinstance(message, Included)]

    def has(self, name: str, kind: type[Any]) -> bool:
        return any(isinstance(task, kind) for task in self.tasks[name].values())


def list_of(asked: effects.ListMembers) -> str:
    """A digest of the list's members, as the real one is."""
    return hashlib.sha256(repr([member.assignment for member in asked.members]).encode()).hexdigest()


def sums_of(task: Confirm | Unmask, wrong: bool) -> str:
    """The digest of the sums of masks of a task's seeds."""
    return hashlib.sha256(repr((task.seeds, wrong)).encode()).hexdigest()
