"""Updates that are encoded while the worker trains on: no step is lost or counted twice, in any order of events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from threading import Semaphore
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from barnraise.core.types import Contribution, ParameterRange, RowRange, Train
from barnraise.worker.device_session import DeviceSession
from barnraise.worker.executor import WorkerExecutor

from ..state_machine.engine import told
from ..tasks import train
from ..unit.worker.test_executor import SIZE, STEPS, Trainer, publish

TASKS, MOST_JOBS = 5, 4 * STEPS
ON_DEVICE = "chunked_topk"
OPTIONS = {"topk": {"ratio": 0.2, "half_values": False}, ON_DEVICE: {"ratio": 0.25, "chunk": 64}}


class Gate(Executor):
    """A pool of one thread that carries its next work out when it is told to."""

    def __init__(self) -> None:
        self._pool, self._permits = ThreadPoolExecutor(1), Semaphore(0)
        self._left: deque[Future[Any]] = deque()

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        def later() -> Any:
            self._permits.acquire()
            return work(*given, **named)

        self._left.append(self._pool.submit(later))
        return self._left[-1]

    def let(self, count: int) -> None:
        """Carry out at most `count` pieces of work that were submitted, and return when they are done."""
        told = [self._left.popleft() for _ in range(min(count, len(self._left)))]
        for _ in told:
            self._permits.release()
        wait(told)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.let(len(self._left))
        self._pool.shutdown()


class Order(NamedTuple):
    """The events after one step: `work` pieces of the queue's work, and perhaps a version of the oldest update."""

    work: int
    version: bool


class Story:
    """A worker that takes `TASKS` tasks; the numbers in `refused` are refused, all others merged with `share`."""

    def __init__(self, orders: list[Order], refused: set[int], codec: str, share: float, gate: Gate | None) -> None:
        generator = torch.Generator().manual_seed(0)
        self.steps = [torch.randn(SIZE, generator=generator) for _ in range(TASKS * STEPS)]
        trainer: Any = Trainer(iter([step.clone() for step in self.steps]))
        rows: Any = SimpleNamespace(rows=lambda shard, start, stop: np.zeros((stop - start, 4), np.uint16), meta=None)
        trainer.exchanges_on_device = codec == ON_DEVICE
        options = OPTIONS.get(codec, {})
        uplink = {"codec": codec, "options": options, "keep": 1.0, "decay": 1.0}
        self.worker = WorkerExecutor(trainer, rows, told(uplink=uplink))
        assert isinstance(self.worker.course, DeviceSession) == (codec == ON_DEVICE)
        if gate is not None:
            self.worker.encode_on(gate)
        self.orders, self.refused, self.share, self.gate = iter(orders), refused, share, gate
        self.version = self.merged = 0
        self.published = torch.zeros(SIZE)  # sum of all updates in versions
        self.made: list[Future[Contribution | None]] = []
        self.updates: dict[int, Tensor] = {}
        self.unsettled: deque[int] = deque()

    def told(self) -> None:
        """Read the updates that were encoded since, and answer them."""
        for future in [future for future in self.made if future.done()]:
            self.made.remove(future)
            found = future.result()
            assert found is not None
            sent = self.worker.payloads[found.assignment]
            self.updates[found.assignment] = -sent.codec.decode(sent.encoded)
            self.worker.settle(found.assignment, found.assignment not in self.refused)
            self.unsettled.append(found.assignment)

    def on_step(self, step: int) -> None:
        order = next(self.orders)
        if self.gate is not None:
            self.gate.let(MOST_JOBS if step == STEPS else order.work)
        self.told()
        if order.version and self.unsettled:
            self.merge(self.unsettled.popleft())

    def merge(self, number: int) -> None:
        """Publish a version with an update, or with none where it was refused."""
        self.version += 1
        delta = self.share * self.updates[number] if number not in self.refused else torch.zeros(SIZE)
        self.published += self.updates[number] if number not in self.refused else 0.0
        publish(self.worker, self.version, delta, merged=number, share=self.share)

    def run(self) -> None:
        for number in range(1, TASKS + 1):
            self.made.append(self.worker.train(self.task(number), self.on_step))
        if self.gate is not None:
            self.gate.let(MOST_JOBS)
        self.told()
        if self.gate is not None:
            self.gate.let(MOST_JOBS)

    def task(self, number: int) -> Train:
        rows, whole = (RowRange(0, 0, 2),), ParameterRange(0, SIZE)
        return train(number, rows=rows, tokens=8, steps=STEPS, parameters=whole, share=self.share)

    def residual(self) -> Tensor:
        """Return the residual, as progress."""
        feedback = self.worker.path.feedback
        return torch.zeros(SIZE) if feedback is None or feedback.residual is None else -feedback.residual


ORDERS = st.lists(st.builds(Order, st.integers(0, 3), st.booleans()), min_size=TASKS * STEPS, max_size=TASKS * STEPS)


def story(orders: list[Order], refused: set[int], codec: str, share: float) -> Story:
    gate = Gate()
    try:
        found = Story(orders, refused, codec, share, gate)
        found.run()
    finally:
        gate.shutdown()
    return found


@pytest.mark.parametrize("share", [0.25, 1.0])
@pytest.mark.parametrize("codec", OPTIONS)
@settings(max_examples=20)
@given(orders=ORDERS, refused=st.sets(st.integers(1, TASKS)))
def test_every_step_is_in_one_update_or_in_the_residual(
    orders: list[Order], refused: set[int], codec: str, share: float
) -> None:
    found = story(orders, refused, codec, share)
    sent = sum(update for number, update in found.updates.items() if number not in refused)
    assert sorted(found.updates) == list(range(1, TASKS + 1))
    torch.testing.assert_close(sent + found.residual(), sum(found.steps), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("codec", OPTIONS)
@settings(max_examples=20)
@given(orders=ORDERS)
def test_a_lone_worker_is_where_it_would_be_without_an_exchange(orders: list[Order], codec: str) -> None:
    found = story(orders, set(), codec, 1.0)
    torch.testing.assert_close(found.worker.course.start, sum(found.steps), rtol=1e-4, atol=1e-4)


@settings(max_examples=20)
@given(orders=ORDERS, refused=st.sets(st.integers(1, TASKS)))
def test_without_a_residual_the_updates_are_those_of_the_sequential_order(
    orders: list[Order], refused: set[int]
) -> None:
    found, alone = story(orders, refused, "none", 0.25), Story(orders, refused, "none", 0.25, None)
    alone.run()
    assert found.updates.keys() == alone.updates.keys()
    for number, update in alone.updates.items():
        torch.testing.assert_close(found.updates[number], update, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("codec", OPTIONS)
@settings(max_examples=20)
@given(orders=ORDERS)
def test_a_worker_is_at_the_version_with_its_own_residual(orders: list[Order], codec: str) -> None:
    """Once all of its updates are merged, and between two steps, as in the sequential order."""
    gate = Gate()
    try:
        found = Story(orders, set(), codec, 0.25, gate)
        found.run()
        while found.unsettled:
            found.merge(found.unsettled.popleft())
        course, trainer, last = found.worker.course, found.worker.trainer, found.task(TASKS + 1)
        course.begin(last)
        for _ in range(3):  # an offset to an earlier version may be under way
            gate.let(MOST_JOBS)
            course.take_in(last, 0)
        torch.testing.assert_close(trainer.flat.vector, found.worker.replica + found.residual(), rtol=1e-4, atol=1e-4)
    finally:
        gate.shutdown()
