"""Results of a new kind: the controller takes them as their kind of task declares."""

from __future__ import annotations

import pytest

from barnraise.controller.machine import Controller
from barnraise.controller.state import effects
from barnraise.controller.state.actions import Action, Discard, Journal, Receive, Send
from barnraise.controller.state.events import Arrived, Received
from barnraise.controller.versions.task_kind import ANY_STALENESS, TaskKind
from barnraise.controller.work.inspection import Inspection
from barnraise.controller.work.training import Training
from barnraise.core import types
from barnraise.core.types import Blob, ParameterRange, PayloadResult, Result, Signature, Task
from barnraise.ledger.decisions import Assigned, Judged, Terms
from barnraise.wire.messages import Ack, Offer

from ....state_machine.engine import Engine, digest, engine_settings


class Sealed(PayloadResult, frozen=True, gc=False, tag="sealed", kw_only=True):
    """A payload that the controller cannot read."""

    payload: Blob
    signature: Signature = ""


class Seal(Task, frozen=True, gc=False, tag="seal", kw_only=True):
    """A task that results in one."""

    result = Sealed


class Sealing(TaskKind):
    task = Seal


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    """A run with the node 'ann', which has assignment 1, of the new kind."""
    monkeypatch.setitem(types.KINDS, "seal", Seal)
    engine = Engine(engine_settings())
    engine.hello("ann")
    machine: Controller = engine.machine
    inspection, training = machine.parts[Inspection], machine.parts[Training]
    inspection.kinds = {**inspection.kinds, "seal": Sealing(machine.context, training.cost_model)}
    terms = Terms(max_staleness=ANY_STALENESS, learning_rate=0.0, parameters=ParameterRange(0, 0))
    given = Assigned(
        0.0, 1, "ann", "seal", base=0, tokens=0, local_steps=0, rows=(), cursor=0, terms=terms
    )  # fmt: skip
    machine._carry([given], [])
    return machine


def offered(machine: Controller, result: Result) -> list[Action]:
    return machine.handle(Received("ann", Offer(result)), 1.0)  # type: ignore[arg-type]


def sealed(size: int = 100) -> Sealed:
    return Sealed(assignment=1, base=0, steps=0, loss=0.0, seconds=1.0, payload=Blob(digest(5), size))


def test_a_payload_of_a_new_kind_is_taken_unread(controller: Controller) -> None:
    result = sealed()
    assert offered(controller, result) == [Receive("ann", result)]
    (asked,) = controller.handle(Arrived("ann", 1, 100), 2.0)
    assert asked == effects.Inspect(1, "ann", result, 0, "none")
    actions = controller.handle(effects.Inspected(1, 1, 0.0), 3.0)
    (judged,) = [step.decision for step in actions if isinstance(step, Journal)]
    assert isinstance(judged, Judged)
    assert (judged.verdict, judged.claim.result, judged.claim.digest) == ("accepted", "sealed", digest(5))
    assert judged.brings
    assert judged.tokens == 0
    assert Send("ann", Ack(1, True)) in actions
    assert not any(isinstance(step, effects.Score) for step in actions)
    assert not controller.state.works
    assert not controller.state.merging, "it enters no version"


def test_a_payload_of_a_new_kind_with_another_digest_is_dropped(controller: Controller) -> None:
    result = sealed()
    offered(controller, result)
    controller.handle(Arrived("ann", 1, 100), 2.0)
    actions = controller.handle(effects.Inspected(1, 1, 0.0, "payload hashes to another digest"), 3.0)
    assert Discard("ann", 1) in actions
    assert controller.state.nodes["ann"].verdicts[1] == (False, "payload hashes to another digest")


def test_another_kind_of_result_than_its_task_has_is_refused(controller: Controller) -> None:
    other = types.Finding(assignment=1, base=0, steps=0, loss=0.0, seconds=1.0, weight=1)
    actions = offered(controller, other)
    (ack,) = [step.message for step in actions if isinstance(step, Send)]
    assert ack == Ack(1, False, "a finding is no answer to a task of the kind seal")
