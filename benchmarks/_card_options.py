"""Parts of `gpu.py`: each option of training, and tasks with their exchange, with a card's idle share."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import torch
from _card_bench import Bench, make_executor
from _cards import Rows, operations_a_token, peak_operations
from large import timed
from overlap import SHARE, Stream

from barnraise.core.types import Batches, Contribution, News, ParameterRange, RowRange, Train
from barnraise.models.memory import model_size
from barnraise.worker.executor import WorkerExecutor
from barnraise.worker.pools import Pools

HEAD = ("", "tokens/s", "of AdamW", "MFU", "card GiB", "card idle")
PROFILED = 4
"""Steps of a turn that are profiled: the profiler takes seconds for the events of many."""

WARM, TASKS = 2, 5
"""Tasks with an exchange before those that are timed, and all of them."""

TRAINING: dict[str, dict[str, Any]] = {
    "adamw": {},
    "muon": {"inner_optimizer": "muon"},
    "8-bit": {"inner_optimizer": "adamw_8bit"},
    "offload": {"offload_optimizer": True},
    "checkpointing": {"checkpoint_activations": True},
    "lora": {"adapter": {"rank": 16}},
    "qlora": {"adapter": {"rank": 16, "base": "nf4"}},
    "compile": {"compile": "auto"},
}
"""Keys of `training`, by the name of the part that measures them."""


def idle_share(work: Callable[[], object], *, cuda: bool) -> float | None:
    """Return the share of the time of `work` in which no kernel runs, by the profiler; None where it sees none.

    Without a card it is the share in which torch does nothing.
    """
    kind = torch.profiler.ProfilerActivity.CUDA if cuda else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[kind], acc_events=True) as profiler:
        seconds = timed(work)
    busy = covered(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if (event.device_type != torch.autograd.DeviceType.CPU) == cuda and not event.name.startswith("Mem")
    )
    return max(0.0, 1.0 - busy / 1e6 / seconds) if busy else None


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of `spans`.

    >>> covered([(5, 6), (0, 2), (1, 3)])
    4.0
    """
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def training(bench: Bench, name: str) -> None:
    """Measure the steps of one option: tokens/s, memory of the card, and the share of time in which it idles."""
    scale = bench.scale
    executor, resolved = make_executor(bench, scale.model, scale.vocabulary, scale.context, **TRAINING[name])
    trainer, rows = executor.trainer, Rows(scale.vocabulary, scale.context, scale.batch * scale.steps)
    if name == "offload" and not bench.cuda:
        trainer.offload()  # a CPU does not by itself

    def steps(count: int = scale.steps) -> None:
        trainer.run(rows.batches(scale.batch, count), 1e-4)
        bench.finish_work()

    print(f"  first turn: {timed(steps):.1f} s", flush=True)
    tokens = scale.batch * scale.context * scale.steps
    rates = [tokens / timed(steps) for _ in range(scale.turns if bench.clock.left else 1)]
    for remark in trainer.remarks:
        print(f"  {remark}")
    shape = scale.model["num_layers"], scale.model["hidden_size"], scale.context
    frozen = trainer.flat.layout.size < (size := model_size(resolved))
    operations = operations_a_token(size, *shape, frozen=frozen)
    idle = idle_share(partial(steps, min(PROFILED, scale.steps)), cuda=bench.cuda)
    told = row(bench, name, statistics.median(rates), operations, idle)
    print(f"  {resolved['model_type']}, {trainer.flat.layout.size:,} trained: {told}", flush=True)


def row(bench: Bench, name: str, rate: float, operations: float | None, idle: float | None) -> str:
    """Add a row to the table, and return it as text."""
    peak = peak_operations(torch.cuda.get_device_name()) if bench.cuda else None
    plain = next((float(each[1].replace(",", "")) for each in bench.rows if each[0] == "adamw"), None)
    found = (
        name,
        f"{rate:,.0f}",
        f"{rate / plain:.0%}" if plain else "-",
        f"{rate * operations / peak:.1%}" if peak and operations else "-",
        f"{torch.cuda.max_memory_allocated() / 2**30:.2f}" if bench.cuda else "-",
        "no kernel seen" if idle is None else f"{idle:.1%}",
    )
    bench.rows.append(found)
    return ", ".join(f"{head} {cell}" for head, cell in zip(HEAD[1:], found[1:], strict=True))


def tasks(bench: Bench) -> None:
    """Measure whole tasks, whose updates are encoded and in which a version is taken in, beside their steps alone."""
    scale = bench.scale
    steps, whole = scale.exchange_steps, Rows(scale.vocabulary, scale.context, scale.batch * scale.exchange_steps)
    executor, _ = make_executor(bench, scale.model, scale.vocabulary, scale.context)
    dataset = SimpleNamespace(meta=whole.meta, rows=lambda shard, start, stop: whole.rows[start:stop])
    executor.dataset = cast("Any", dataset)
    trainer = executor.trainer

    def alone() -> None:
        trainer.run(whole.batches(scale.batch, steps), 1e-4)
        bench.finish_work()

    alone()
    least = min(timed(alone) for _ in range(2))
    stream = Stream(len(executor.replica), 2 * TASKS)
    pools = Pools(bench.device)
    executor.encode_on(pools.encoding)
    play = partial(Play(executor, pools, stream, scale.batch, steps).take, bench=bench)
    play(WARM)
    seconds = timed(lambda: play(TASKS - WARM)) / (TASKS - WARM)
    idle = idle_share(lambda: play(WARM), cuda=bench.cuda)
    pools.shutdown()
    rate = scale.batch * scale.context * steps / seconds
    told = row(bench, f"tasks of {steps} steps", rate, None, idle)
    where = "on the card" if trainer.exchanges_on_device else "in main memory"
    print(f"  exchange {where}, {least / seconds:.1%} of the time in steps; {told}", flush=True)


class Play:
    """Tasks of one worker, one after the other, each with a version in its midst."""

    def __init__(self, worker: WorkerExecutor, pools: Pools, stream: Stream, batch: int, steps: int) -> None:
        self.worker, self.pools, self.stream = worker, pools, stream
        self.batch, self.steps, self.done = batch, steps, 0

    def take(self, count: int, bench: Bench) -> None:
        """Carry out `count` tasks, and return when the last is encoded."""
        made, news = list[Future[Contribution | None]](), list[Future[int]]()
        for _ in range(count):
            self.done += 1
            made.append(self.pools.training.submit(self.worker.train, self._task(), self._on_step(news)).result())
        wait(made)
        for update in made:
            found = update.result()
            assert found is not None
            self.worker.settle(found.assignment, True)
        assert [one.result() for one in news] == list(range(self.done - count + 1, self.done + 1)), "all taken in"
        bench.finish_work()

    def _on_step(self, news: list[Future[int]]) -> Callable[[int], None]:
        number = self.done

        def on_step(step: int) -> None:
            if step == max(1, self.steps // 2):
                version = self.stream.news(number, max(0, number - 2))
                payload = self.stream.payload
                news.append(self.pools.updating.submit(self.worker.update, version, lambda _: payload))

        return on_step

    def _task(self) -> Train:
        rows = Batches((RowRange(0, 0, self.batch * self.steps),), self.batch, self.done)
        size = len(self.worker.replica)
        return Train(
            id=self.done, base=self.done - 1, tokens=1, local_steps=self.steps, learning_rate=1e-4, rung=0,
            parameters=ParameterRange(0, size), max_staleness=5, batches=rows, news=News((), 0, SHARE),
        )  # fmt: skip


def table(rows: Sequence[tuple[str, ...]], title: str) -> str:
    """Return the rows as a table of Markdown."""
    lines = [(title, *HEAD[1:]), tuple("---" for _ in HEAD), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
