"""Measure the share of a worker's time in steps while its updates are encoded and versions are taken in.

    python benchmarks/overlap.py            124 million parameters, 30 and 100 steps a task; about three minutes
    python benchmarks/overlap.py --alone    on the training thread alone, as if nothing overlapped

The worker's executor is that of a run, on the threads of a run. A step is a sleep of 20 ms, as if a device computed it,
and moves a part of the parameters. Updates go up in `sparse_loco` with error feedback; in the midst of each task a
version of one update comes in `int4`. The parts of the exchange are also timed one by one on one thread, in the
processor's time: with their sum a task's exchange takes at least that long on this machine's cores, and a worker whose
tasks are shorter than that waits. The lost time is told by its cause: copies that a change of the parameters waits for,
offsets that are added, and late wake-ups; the rest is mostly waiting for the encoding of the update before.
Target: >= 90% of the time in steps at 30 steps a task, >= 97% at 100, on two cores.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from _machine import look
from large import DOWN, SETTINGS, UP
from torch import Tensor, nn

from barnraise import compression
from barnraise.compression.feedback import ErrorFeedback
from barnraise.core.threads import Crew
from barnraise.core.types import Batches, Blob, Contribution, News, ParameterRange, RowRange, Train, Update
from barnraise.data.batches import Batch
from barnraise.models.vectors import Leaves
from barnraise.training.local import LocalTrainer
from barnraise.training.transfers import Transfer
from barnraise.worker.executor import WorkerExecutor
from barnraise.worker.offsets import VersionOffset
from barnraise.worker.pools import Pools
from barnraise.worker.stages import Difference, Draft

STEP = 0.02
STRIPES = 30  # equal parts of the parameters, of which a step moves one
WARM = 3  # the first task that is timed
SHARE = 0.25  # the part that an update has in a version


class Sleeper(LocalTrainer):
    """A trainer whose device computes each gradient in the rest of `STEP` seconds."""

    def __init__(self, size: int) -> None:
        module = nn.Module()
        module.register_parameter("w", nn.Parameter(torch.zeros(size)))
        super().__init__(module, optimizer="sgd", options={"momentum": 0.0, "weight_decay": 0.0}, gradient_clip=None)
        self._noise, self._moved = torch.randn(-(-size // STRIPES)) * 1e-3, 0
        self._took = 0.0
        self.lost = dict[str, float]()  # seconds of the training thread that are not steps, by their cause

    def _lose(self, cause: str, began: float, meant: float = 0.0) -> None:
        self.lost[cause] = self.lost.get(cause, 0.0) + time.monotonic() - began - meant

    def hold(self) -> None:
        began = time.monotonic()
        super().hold()
        self._lose("copies", began)

    def shift(self, offset: Tensor) -> Transfer:
        self.hold()
        began = time.monotonic()
        added = super().shift(offset)
        self._lose("offsets", began)
        return added

    def run(
        self, batches: Iterator[Batch], learning_rate: float, after_step: Callable[[int], bool] = lambda step: True
    ) -> tuple[int, float]:
        for number, _ in enumerate(batches, 1):
            began, rest = time.monotonic(), max(0.0, STEP - self._took)
            time.sleep(rest)
            self._lose("waking up", began, rest)
            self.hold()
            began = time.monotonic()
            start = self._moved % STRIPES * len(self._noise)
            stripe = self.flat.vector[start : start + len(self._noise)]
            stripe += self._noise[: len(stripe)]
            self._moved += 1
            self._took = time.monotonic() - began
            if not after_step(number):
                break
        return number, 1.0


class Sleeping(WorkerExecutor):
    """An executor whose batches are of no rows."""

    def batches(self, task: Train) -> Iterator[Batch]:
        return cast("Iterator[Batch]", iter([None] * task.local_steps))


class Stream:
    """Equal versions, one after the other, each the change `SHARE` of an update."""

    def __init__(self, size: int, count: int) -> None:
        down = compression.create(DOWN)
        delta = down.encode(torch.randn(size) * 1e-4)
        self.payload = delta.payload
        blob = Blob(hashlib.sha256(delta.payload).hexdigest(), delta.num_bytes)
        decoded, parameters, leaves = down.decode(delta), torch.zeros(size), Leaves(Crew(2))
        self.updates = [
            Update("delta", version, blob, leaves.digest(parameters.add_(decoded))) for version in range(1, count + 1)
        ]

    def news(self, version: int, merged: int) -> News:
        return News((self.updates[version - 1],), merged, SHARE)


def share_in_steps(size: int, steps: int, tasks: int, stream: Stream, *, alone: bool) -> tuple[float, dict[str, float]]:
    """Return the share of the time in steps from task `WARM` on, and the seconds lost a task by their cause."""
    pools = Pools("a device")
    sleeper = Sleeper(size)
    worker = Sleeping(sleeper, cast("Any", SimpleNamespace(meta=None)), SETTINGS)
    if not alone:
        worker.encode_on(pools.encoding)
    made: list[Future[Contribution | None]] = []
    news: list[Future[int]] = []
    began = 0.0
    for number in range(1, tasks + 1):
        if number == WARM:
            began = time.monotonic()
            sleeper.lost.clear()

        def on_step(step: int, number: int = number) -> None:
            if step == steps // 2:
                version = stream.news(number, number - 2)
                news.append(pools.updating.submit(worker.update, version, lambda _: stream.payload))
            for done in [one for one in made if one.done()]:
                made.remove(done)
                found = done.result()
                assert found is not None
                worker.settle(found.assignment, True)

        whole = ParameterRange(0, size)
        order = Batches((RowRange(0, 0, 1),), 1, number)
        task = Train(
            id=number, base=number - 1, tokens=steps, local_steps=steps, learning_rate=0.1, rung=0, parameters=whole,
            max_staleness=5, batches=order, news=News((), 0, SHARE),
        )  # fmt: skip
        made.append(pools.training.submit(worker.train, task, on_step).result())
    seconds = time.monotonic() - began
    wait(made)
    assert [one.result() for one in news] == list(range(1, tasks + 1)), "every version was taken in"
    pools.shutdown()
    timed = tasks - WARM + 1
    lost = {cause: found / timed for cause, found in sleeper.lost.items()}
    return timed * steps * STEP / seconds, lost | {"in all": seconds / timed - steps * STEP}


def parts(size: int, stream: Stream) -> dict[str, float]:
    """Return the nanoseconds a parameter that each part of an exchange takes on one thread."""
    torch.set_num_threads(1)
    codec = compression.create(UP)
    start, end, replica = torch.randn(size), torch.randn(size), torch.zeros(size)
    feedback = ErrorFeedback(codec)
    feedback.compress(torch.randn(size))
    difference = Difference(Crew(), feedback)
    down, leaves, encoded = compression.create(DOWN), Leaves(), codec.encode(start)

    def keep() -> None:
        nonlocal start
        start = feedback.keep(start, encoded, codec)

    found = {
        "copy of the parameters (two of them)": lambda: np.copyto(end.numpy(), start.numpy()),
        "offset that is added (twice)": lambda: end.add_(start),
        "difference, and the residual that is added": lambda: difference.forward(
            Draft(start, end, 1.0, 0, None, codec)
        ),
        f"{UP}": lambda: codec.encode(start),
        "residual that is kept": keep,
        f"version decoded and added ({DOWN})": lambda: down.decode_add(stream.payload, replica),
        "digest of the version": lambda: leaves.digest(replica),
        "offset that is prepared": lambda: merged(replica, start, end, encoded),
    }
    return {name: min(cpu(work) for _ in range(3)) / size * 1e9 for name, work in found.items()}


def merged(replica: Tensor, start: Tensor, here: Tensor, update: compression.base.Encoded) -> None:
    """Prepare an offset, as a worker with one unmerged update that keeps its residual."""
    reader = compression.create(UP).open(update, len(here))
    unmerged = [((0, len(here)), reader)]
    way = VersionOffset(there=replica, start=start, unmerged=unmerged, share=SHARE, residual=start, keep=1.0, rest=0.5)
    way.overwrite(here, Crew())


def cpu(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d", type=float, default=124e6, help="parameters (124e6)")
    parser.add_argument("--steps", type=int, nargs="+", default=[30, 100], help="steps a task")
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--alone", action="store_true", help="encode on the training thread")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    size = 1_000_000 if options.quick else int(options.d)
    steps, tasks = ([5], 4) if options.quick else (options.steps, options.tasks)
    print(f"{size:,} parameters, {UP} up, {DOWN} down, {options.threads} threads; {look()}", flush=True)
    torch.set_num_threads(options.threads)
    stream = Stream(size, tasks)
    found = parts(min(size, 32_000_000), Stream(min(size, 32_000_000), 1))
    for name, nanoseconds in found.items():
        print(f"  {nanoseconds:6.2f} ns a parameter: {name}")
    whole = sum(found.values()) + sum(list(found.values())[:2])
    floor = whole * size / 1e9 / options.threads
    print(f"  {whole:6.2f} in all: {floor:.2f} s a task at least on {options.threads} cores", flush=True)
    for count in steps:
        torch.set_num_threads(options.threads)
        share, lost = share_in_steps(size, count, tasks, stream, alone=options.alone)
        limit = min(1.0, count * STEP / floor)
        print(f"  {count:4} steps a task: {share:6.1%} of the time in steps (the exchange allows {limit:.0%})")
        causes = ", ".join(f"{cause} {1e3 * seconds:.0f}" for cause, seconds in lost.items())
        print(f"       milliseconds lost a task: {causes}", flush=True)


if __name__ == "__main__":
    main()
