"""Rows of several lengths: how text is cut into them, what describes them, and that runs of them work."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from barnraise import compression
from barnraise.assembly.simulated_work import costed
from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.cli import main
from barnraise.config.load import dump, load
from barnraise.core.errors import DataError, RunFileError
from barnraise.core.types import NodeProfile, ParameterRange, RowRange
from barnraise.data import text
from barnraise.data.shards import Dataset, Meta
from barnraise.models.build import build as build_model
from barnraise.models.config import describe
from barnraise.models.exchange.layout import Layout
from barnraise.plan import Purpose, resolve
from barnraise.plan.data_files import training_rows
from barnraise.plan.estimate import estimate
from barnraise.plan.preflight import inspect
from barnraise.training.causal_lm import CausalLM
from barnraise.worker.building import make_trainer
from barnraise.worker.executor import WorkerExecutor

from ...state_machine.engine import WORKER_SETTINGS, told
from ...tasks import train

LENGTHS = [16, 32, 64]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a text of 60 kB in which no row is like another."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    (tmp_path / "story.txt").write_bytes(bytes(rng.randrange(32, 127) for _ in range(60_000)))
    return tmp_path


def run_file(context: Any = LENGTHS, **training: Any) -> Any:
    return load(
        {
            "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
            "data": {"kind": "text", "files": ["story.txt"], "context": context},
            "training": {"tokens": 4000, "batch_size": 2, "local_steps": 2} | training,
            "workers": [{"name": "a"}],
        }
    )


def build(context: Any = LENGTHS, seed: int = 0) -> Meta:
    return text.build(f"made{seed}", ["story.txt"], context=context, seed=seed)


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(list(arguments))
    assert not caught.value.code


def test_each_length_has_an_equal_share_of_the_text_in_shards_of_its_own() -> None:
    meta = build()
    dataset = Dataset.open("made0", verify=True)
    assert (meta.context, meta.lengths) == (64, (16, 32, 64))
    tokens, found = dict.fromkeys(LENGTHS, 0), 0
    for number, info in enumerate(meta.shards):
        rows = dataset.rows(number, 0, info.rows)["tokens"]
        assert rows.shape == (info.rows, dataset.index.lengths[number])
        tokens[rows.shape[1]] += rows.size
        found += rows.size
    assert max(tokens.values()) - min(tokens.values()) <= 64
    index = dataset.index
    assert (
        meta.num_tokens == found == sum(rows * length for rows, length in zip(index.sizes, index.lengths, strict=True))
    )
    assert dataset.num_rows == sum(info.rows for info in meta.shards)
    assert dataset.held_out()["tokens"].shape == (meta.held_out.rows, 64)
    size = found + dataset.held_out()["tokens"].size
    assert 60_002 - 2 * 64 < size <= 60_002, "the text and two ends, but for the tail on each side"


def test_shards_in_order_come_by_all_lengths_again_and_again() -> None:
    build()
    dataset = Dataset.open("made0")
    order = [dataset.index.lengths[number] for number in range(dataset.index.num_shards)]
    assert order == LENGTHS * (len(order) // 3)
    assert len(order) >= 6


def test_the_seed_is_the_order() -> None:
    first = build()
    assert build() == first
    other = build(seed=1)
    assert [info.rows for info in other.shards] == [info.rows for info in first.shards]
    assert all(a.sha256 != b.sha256 for a, b in zip(first.shards, other.shards, strict=True))


def test_one_length_is_described_as_ever() -> None:
    meta = build(context=32)
    assert build(context=[32]) == meta
    content = Path("made0/meta.json").read_bytes()
    assert [set(shard) for shard in json.loads(content)["shards"]] == [{"name", "rows", "bytes", "sha256"}]
    read = Meta.decode(content)
    assert read.encode() == content
    assert read.lengths == (32,)
    assert (read.num_tokens, read.shards[0].rows) == (32 * read.shards[0].rows, meta.shards[0].rows)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("shards", {"length": 65}, "has rows of 65 tokens, but the longest are of 64"),
        ("shards", {"length": 32}, "rows of 64 bytes each"),
        ("shards", {"length": 1}, "length"),
        ("shards", {"length": 1 << 40}, "length"),
        ("shards", {"length": None}, "length"),
        ("held_out", {"length": 64}, r"held_out\.bin has a row length of its own, but only token shards may"),
        ("files", {"length": 64}, "has a row length of its own"),
    ],
)
def test_hostile_lengths_are_refused(file: str, change: dict[str, Any], message: str) -> None:
    build()
    content = json.loads(Path("made0/meta.json").read_text())
    place = content[file]
    (place[0] if isinstance(place, list) else place).update(change)
    with pytest.raises(DataError, match=message):
        Meta.decode(json.dumps(content).encode())


def test_more_than_eight_lengths_are_refused_in_a_description_too() -> None:
    build()
    content = json.loads(Path("made0/meta.json").read_text())
    content["shards"] = [
        {"name": f"s{length}", "rows": 1, "bytes": 2 * length, "sha256": "0" * 64, "length": length}
        for length in range(8, 17)
    ]
    with pytest.raises(DataError, match="rows have 9 lengths, but may have 8"):
        Meta.decode(json.dumps(content).encode())
    del content["shards"][-1]
    assert len(Meta.decode(json.dumps(content).encode()).lengths) == 8


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ([], "context is an empty list; give at least one row length"),
        ([64, 32], r"context \[64, 32\] does not ascend; write \[32, 64\]"),
        ([32, 32], r"context \[32, 32\] has a row length twice"),
        (list(range(8, 17)), "context has 9 row lengths, but may have 8"),
        ([1, 32], "context is 1, but a row of text has at least 2 tokens"),
        ([16, 50_000], "held-out part of .* does not fill one row of 50000 tokens"),
    ],
)
def test_lengths_that_cannot_be_are_refused_by_name(context: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        build(context)
    assert not Path("made0").exists()


def test_too_little_text_for_a_length_is_said() -> None:
    Path("story.txt").write_text("x" * 150)
    with pytest.raises(DataError, match="no training row of 64 tokens; give more data or a smaller context"):
        text.build("made", ["story.txt"], context=[8, 16, 24, 64], held_out=0.5)
    errors, _ = inspect(run_file([8, 16, 24, 64]), Purpose.TRAIN)
    assert [str(error) for error in errors] == [
        "data.files: hold 150 bytes, but rows of 8, 16, 24, 64 and 64 tokens need 176; give more text, or lower context"
    ]


@pytest.mark.parametrize(
    ("context", "key"),
    [
        ([], "data.context"),
        ([64, 32], "data.context"),
        ([32, 32], "data.context"),
        (list(range(8, 17)), "data.context"),
        ([4, 32], r"data.context\[0\]"),
        ([8.5, 32], r"data.context\[0\]"),
        ("64", "data.context"),
    ],
)
def test_a_run_file_names_what_is_wrong_with_its_lengths(context: Any, key: str) -> None:
    with pytest.raises(RunFileError, match=rf"{key}: is .*, but must be a whole number from 8 to 1048576"):
        run_file(context)


def test_a_run_file_is_written_as_it_was_read() -> None:
    assert run_file().data.context == LENGTHS
    Path("run.yaml").write_text(dump(run_file()))
    assert load("run.yaml") == run_file()


def test_a_plan_counts_with_the_mean_and_the_model_reads_the_longest() -> None:
    plan, longest = resolve(run_file()), resolve(run_file(64))
    assert plan.task_tokens == 2 * 2 * 27  # 3 / (1/16 + 1/32 + 1/64)
    several, one = estimate(plan), estimate(longest)
    assert several.sizes.parameters == one.sizes.parameters
    assert several.worker_memory_bytes == one.worker_memory_bytes
    assert several.contributions > 2 * one.contributions


def test_a_costed_run_counts_with_rows_as_real_data_has_them() -> None:
    plan, meta = resolve(run_file(), purpose=Purpose.SIMULATE, nodes=2), build()
    work = costed(plan, estimate(plan))
    shards, tasks, evaluations = work.settings.tasks.rows, work.settings.tasks, work.settings.evaluations
    assert list(shards.lengths[:6]) == LENGTHS * 2
    assert shards.total == pytest.approx(sum(info.rows for info in meta.shards), rel=0.02)
    assert training_rows(plan.run_file) == pytest.approx(shards.total, rel=0.02)
    assert (tasks.context, evaluations.row_tokens) == (27, 64)
    sizes = [file.num_bytes for file in work.controller.files()]
    assert sizes == [
        *(2 * rows * length for rows, length in zip(shards.sizes, shards.lengths, strict=True)),
        2 * 64 * plan.run_file.evaluation.rows,
    ]


@pytest.mark.parametrize("evaluated_by", ["controller", "workers"])
@pytest.mark.parametrize("real", [False, True])
def test_a_simulation_goes_around_rows_of_all_lengths(real: bool, evaluated_by: str) -> None:
    content = run_file(tokens=30_000, batch_size=8, local_steps=20).model_dump(exclude_none=True)
    content["evaluation"]["by"] = evaluated_by
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=2)
    found = simulate(plan, Trial(2, real=real, tokens_per_second=2000.0))
    assert found.tokens >= 30_000
    assert found.verdicts.refused == 0
    if real:
        assert found.losses.first_loss is not None
        assert found.losses.final_loss is not None
        assert found.losses.final_loss < found.losses.first_loss


def test_a_worker_measures_its_speed_on_rows_of_the_median_length() -> None:
    build()
    shapes: list[tuple[int, ...]] = []
    vector = torch.zeros(10)
    trainer: Any = SimpleNamespace(
        flat=SimpleNamespace(vector=vector, layout=Layout.of([("w", (10,))])),
        device=torch.device("cpu"),
        rows_at_once=lambda length: None,
        tokens_at_once=None,
        exchanges_on_device=False,
        problem=CausalLM(),
        step=lambda batch, rate: shapes.append(batch["input_ids"].shape),
        row_overhead=lambda batch: 1.0,
        forget=lambda: None,
    )
    executor = WorkerExecutor(trainer, Dataset.open("made0"), told(uplink={"codec": compression.create("none").name}))
    assert executor.measure(NodeProfile(), 3, seconds=0.0).tokens_per_second > 0.0
    assert {length for _, length in shapes} == {32}
    assert all(rows <= 3 for rows, _ in shapes)


def test_a_task_with_rows_of_several_lengths_is_carried_out() -> None:
    """No controller should give one; no worker breaks of it."""
    build()
    dataset = Dataset.open("made0")
    section = {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}}
    trainer = make_trainer(build_model(describe(section, dataset.meta.vocab_size, 64)), WORKER_SETTINGS)
    executor = WorkerExecutor(trainer, dataset, WORKER_SETTINGS)
    executor.replica.copy_(trainer.flat.vector)
    rows = (RowRange(2, 0, 3), RowRange(0, 5, 10), RowRange(1, 0, 2), RowRange(0, 0, 1))
    steps: list[int] = []
    whole = ParameterRange(0, trainer.flat.layout.size)
    contribution = executor.train(train(steps=10, rows=rows, batch_size=2, parameters=whole), steps.append).result()
    assert contribution is not None
    assert contribution.steps == len(steps) == 2 + 3 + 1
    assert contribution.loss > 0.0


def test_the_data_command_prints_the_lengths_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    options = [option for length in LENGTHS for option in ("--context", str(length))]
    for command in (["text", "out", "story.txt", *options], ["show", "out"]):
        run("data", *command)
        out = capsys.readouterr().out
        assert "rows of 16, 32 and 64 tokens to train on (56," in out
        assert "of 64 held out" in out
    run("data", "show", "out", "--json")
    found = json.loads(capsys.readouterr().out)
    meta = Dataset.open("out").meta
    assert (found["context"], found["lengths"], found["tokens"]) == (64, LENGTHS, meta.num_tokens)


def test_rows_of_a_shard_that_is_not_as_long_as_it_says_are_refused() -> None:
    meta = build()
    path = Path("made0") / meta.shards[0].name
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"bytes, but meta\.json says"):
        Dataset.open("made0")
