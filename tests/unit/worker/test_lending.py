"""On what terms an owner lends a machine: what can be written, and what is refused with a remedy."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from barnraise.controller.fleet.membership import Membership
from barnraise.core.errors import InputError, ModelError
from barnraise.core.types import KINDS, Blob
from barnraise.data.meta import FileInfo, Format, Meta
from barnraise.models import config, memory
from barnraise.models.exchange.record import Exchange
from barnraise.training.catalog import INNER
from barnraise.wire.manifest import Manifest
from barnraise.wire.messages import WorkerSettings
from barnraise.worker.building import build_executor
from barnraise.worker.lending import OF_WORKERS, LendingTerms, terms_of
from barnraise.worker.limits import LEAST_BYTES
from barnraise.worker.options import Means
from barnraise.worker.profile import machine_profile
from barnraise.worker.terms import SNAPSHOT_EXTRA, fit

from ...state_machine.engine import Engine, contribution, engine_settings, told

NOW = datetime(2026, 5, 1, 23, 30)


def data(*lengths: int, vocabulary: int = 64) -> Meta:
    """Return the metadata of one shard of 10 rows for each length; the held-out rows have the largest."""
    form = Format(kind="text", tokenizer="bytes", context=max(lengths), vocab_size=vocabulary)

    def file(name: str, length: int) -> FileInfo:
        own = UNSET if length == max(lengths) else length
        return FileInfo(name=name, rows=10, bytes=20 * length, sha256="0" * 64, length=own)

    shards = [file(f"train-{number}.bin", length) for number, length in enumerate(lengths)]
    return Meta.of(form, shards=shards, held_out=file("held_out.bin", max(lengths)), files=[])


def settings_of(batch_size: int = 8, **changes: Any) -> WorkerSettings:
    inner = {
        "batch_size": batch_size,
        "optimizer": "adamw",
        "options": INNER.resolve("adamw", {}),
        "gradient_clip": None,
    }
    return told(inner=inner, **changes)


def test_nothing_said_is_no_limit() -> None:
    assert terms_of() == LendingTerms(0, 0.0, OF_WORKERS)


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 4e9), ("512MiB", 512 << 20), ("1.5g", 1.5e9), ("2 gb", 2e9), ("3000000", 3e6)]
)
def test_memory(text: str, size: float) -> None:
    assert terms_of(max_memory=text).memory_bytes == size
    assert terms_of(max_disk=text).disk_bytes == size


@pytest.mark.parametrize(("until", "seconds"), [("23:45", 900.0), ("23:30", 86_400.0), ("08:00", 8.5 * 3600)])
def test_until_is_the_next_such_time(until: str, seconds: float) -> None:
    assert terms_of(until=until, now=NOW).seconds == seconds


def test_training_includes_what_is_left_over_of_it() -> None:
    assert terms_of(only="train").kinds == ("train", "flush", "masked")
    assert terms_of(only="evaluate").kinds == ("evaluate",)
    all_of_a_worker = tuple(name for name, kind in KINDS.items() if kind.replica)
    assert terms_of(only=" evaluate, train, audit ").kinds == all_of_a_worker


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_memory": "much"}, "--max-memory 'much' is no amount of bytes.*4GB"),
        ({"max_memory": "3"}, "from 1 MiB"),
        ({"max_disk": "much"}, "--max-disk 'much' is no amount of bytes.*4GB"),
        ({"hours": -1.0}, "above 0"),
        ({"hours": 0.0}, "--hours is 0, but must be above 0 .*; leave it out for no limit"),
        ({"hours": float("nan")}, "above 0"),
        ({"until": "25:00"}, "'25:00' is no time of day.*08:00"),
        ({"hours": 1.0, "until": "08:00"}, "one of them"),
        ({"only": "trian"}, "trian.*train"),
        ({"only": "train,"}, "''"),
    ],
)
def test_an_unreadable_term_is_named_with_a_remedy(given: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        terms_of(**given)  # type: ignore[arg-type]


def manifest_of(model: dict[str, Any]) -> Manifest:
    return Manifest(model, Blob("0" * 64, 1), memory.model_size(model))


def test_as_many_rows_at_once_as_fit_into_memory() -> None:
    shape = {"hidden_size": 32, "num_layers": 2, "num_heads": 2}
    model = config.describe({"architecture": "gpt2", "config": shape}, 64, 16)
    manifest = manifest_of(model)
    row = memory.worker(model, Exchange.of(model), batch_size=1, context=16)

    def tokens(rows: float) -> int | None:
        return fit(manifest, data(16), settings_of(), int(row.vectors + rows * row.activations), "cpu").tokens

    assert [tokens(rows) for rows in (1, 2.5, 8, 100)] == [16, 32, 128, 128], "and never more than a batch"
    with pytest.raises(ModelError, match="one row of its batches need about"):
        tokens(0.9)


def test_a_worker_with_little_memory_takes_the_rows_that_fit() -> None:
    """Shorter ones, where the data has rows of several lengths."""
    shape = {"hidden_size": 32, "num_layers": 2, "num_heads": 2}
    model = config.describe({"architecture": "gpt2", "config": shape}, 64, 64)
    manifest = manifest_of(model)
    meta = data(16, 64)
    short, long = (memory.worker(model, Exchange.of(model), batch_size=1, context=length) for length in (16, 64))
    assert short.allocated < long.allocated
    whole = long.vectors + 8 * long.activations
    for room, tokens, longest in ((short.allocated, 16, 16), (long.allocated, 64, 64), (whole, 512, 64)):
        found = fit(manifest, meta, settings_of(), room, "cpu")
        assert (found.tokens, found.limits.longest, found.limits.lengths) == (tokens, longest, (16, 64, 64))
    with pytest.raises(ModelError, match="one row of its batches need about"):
        fit(manifest, meta, settings_of(), short.allocated - 1, "cpu")


def test_memory_beyond_training_is_divided_between_downloads_and_rows() -> None:
    shape = {"hidden_size": 32, "num_layers": 2, "num_heads": 2}
    model = config.describe({"architecture": "gpt2", "config": shape}, 64, 16)
    size, row = memory.model_size(model), memory.worker(model, Exchange.of(model), batch_size=1, context=16)
    manifest, spare = manifest_of(model), 1 << 30
    whole = row.vectors + 8 * row.activations
    wide, narrow, cuda = (
        fit(manifest, data(16), settings_of(), room, device).limits  # type: ignore[arg-type]
        for room, device in ((whole + spare, "cpu"), (whole, "cpu"), (memory.HOST_VECTORS * 4 * size + spare, "cuda"))
    )
    assert wide.fetched == cuda.fetched == 4 * size + SNAPSHOT_EXTRA + (spare - 320) / 2
    assert wide.batches == (spare - 320) / 2, "less the largest file"
    assert (narrow.fetched, narrow.batches) == (4 * size + SNAPSHOT_EXTRA, LEAST_BYTES)


def test_an_offloaded_optimizer_takes_main_memory() -> None:
    shape = {"hidden_size": 32, "num_layers": 2, "num_heads": 2}
    model = config.describe({"architecture": "gpt2", "config": shape}, 64, 16)
    manifest, size = manifest_of(model), memory.model_size(model)
    settings = settings_of()
    offloaded = replace(settings, inner=replace(settings.inner, offload_optimizer=True))
    room = memory.HOST_VECTORS * 4 * size
    assert fit(manifest, data(16), settings, room, "cuda").tokens is None
    with pytest.raises(ModelError, match="this run's vectors need about"):
        fit(manifest, data(16), offloaded, room, "cuda")
    assert fit(manifest, data(16), offloaded, room + 16 * size, "cuda").tokens is None  # with gradient and moments
    row = memory.worker(model, Exchange.of(model), batch_size=1, context=16)
    assert fit(manifest, data(16), offloaded, row.allocated, "cpu").tokens == 16, "a CPU's were there before"


def test_terms_that_are_too_narrow_are_named_in_the_refusal() -> None:
    shape = {"hidden_size": 32, "num_layers": 2, "num_heads": 2}
    model = config.describe({"architecture": "gpt2", "config": shape}, 64, 16)
    manifest = manifest_of(model)
    meta, settings = data(16), settings_of()
    options: Any = SimpleNamespace(means=Means(max_memory="1MiB"))
    with pytest.raises(ModelError, match=r"but 1\.0 MB are available; lend more of it \(--max-memory\), or join with"):
        build_executor(manifest, meta, settings, options, 1 << 20)
    options = SimpleNamespace(means=Means())
    with pytest.raises(ModelError, match="a larger machine"):
        build_executor(manifest, meta, settings, options, 1 << 20)


def test_a_profile_has_the_free_memory_or_the_lent_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnraise.worker.profile.available_bytes", lambda: 8 << 30)
    has = machine_profile("cpu").memory_bytes
    assert (8 << 30) - memory.PROCESS_BYTES <= has <= 8 << 30
    assert machine_profile("cpu", lent_bytes=2 << 30).memory_bytes == 2 << 30
    assert machine_profile("cpu", lent_bytes=99 << 30).memory_bytes == has
    monkeypatch.setattr("barnraise.worker.profile.available_bytes", lambda: 0)
    assert machine_profile("cpu").room > 0, "0 would be unknown"


# The controller's use of the terms


def lent(seconds: float, rate: float = 120.0, **changes: Any) -> int:
    """Return the steps of the task that a node of the given speed gets, of 60 in 5 s."""
    engine = Engine(engine_settings(tokens=10**9, pace="fixed", local_steps=10, **changes))
    engine.hello("a", lent=seconds)
    if rate:
        engine.observed(a=rate)
    engine.next("a")
    (task,) = engine.held["a"].values()
    return int(task.local_steps)


def test_a_task_is_cut_to_the_time_for_which_a_node_is_lent() -> None:
    assert lent(0.0) == lent(1e9) == 10, "for as long as the run lasts, and for long enough"
    batch = engine_settings().tasks
    seconds = batch.batch_size * batch.context / 120.0  # a step
    assert [lent(n * seconds + 1e-6) for n in (12, 10, 7, 4)] == [10, 10, 7, 4]
    assert lent(seconds) == 3, "a quarter at least: what is done by then is handed in"
    assert lent(seconds, rate=0.0) == 10, "nobody knows yet how long a step takes"


def test_time_that_is_over_while_the_node_stays_counts_no_more() -> None:
    engine = Engine(engine_settings(tokens=10**9, pace="fixed", local_steps=10))
    engine.hello("a", lent=2.0)
    engine.observed(a=1.0)
    membership = engine.machine.parts[Membership]
    assert membership.left("a") == 2.0
    assert not membership.has_time(engine.state.nodes["a"], 3.0)
    engine.tick(2.5)
    engine.next("a")
    assert membership.left("a") == float("inf")
    (task,) = engine.held["a"].values()
    assert task.local_steps == 10
    engine.hello("a", lent=7.0)
    assert membership.left("a") == 7.0, "it says so anew"
    engine.hello("a")
    assert membership.left("a") == float("inf"), "it says no such thing any more"


def test_a_lost_task_is_divided_for_a_node_with_less_time() -> None:
    engine = Engine(engine_settings(tokens=10**9, pace="fixed", local_steps=10))
    step = engine.settings.tasks.batch_size * engine.settings.tasks.context
    for node, seconds in (("a", 0.0), ("b", 5.0 * step)):
        engine.hello(node, lent=seconds)
        engine.observed(**{node: 1.0})
    engine.next("a")
    (whole,) = engine.held["a"].values()
    engine.leave("a")
    engine.next("b")
    (part,) = engine.held["b"].values()
    assert part.local_steps == 5
    assert part.batches.rows == whole.batches.rows
    engine.offer("b", contribution(part))
    while engine.jobs:
        engine.answer(engine.jobs[0])
    assert [(rest.done, rest.local_steps) for rest in engine.state.redo.values()] == [(5, 5)], "and waits for others"
