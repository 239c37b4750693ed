"""The exchange that a run file asks for: adapters, some layers, or the whole model; and its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnraise.config import load
from barnraise.config.document import parse
from barnraise.core.errors import RunFileError
from barnraise.models.config import describe
from barnraise.plan import Purpose, resolve
from barnraise.plan.exchange import exchange_name
from barnraise.plan.resolve import payload_bytes
from barnraise.plan.verify import verify

MODEL = {"architecture": "llama", "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}}


def run(tmp_path: Path, model: dict[str, Any] = MODEL, **training: Any) -> dict[str, Any]:
    (tmp_path / "text.txt").write_text("a barn is raised by many hands.\n" * 200)
    data = {"kind": "text", "files": [str(tmp_path / "text.txt")], "context": 32}
    return {"model": model, "data": data, "run": {"dir": str(tmp_path)}, "training": training}


def problems(content: dict[str, Any]) -> str:
    with pytest.raises(RunFileError) as refused:
        verify(parse(json.dumps(content).encode(), "run.yaml"), purpose=Purpose.SERVE)
    return str(refused.value)


def test_alpha_is_twice_the_rank_and_a_is_seeded_by_the_run(tmp_path: Path) -> None:
    content = run(tmp_path, adapter={"rank": 4, "targets": ["q_proj", "v_proj"]}) | {"run": {"seed": 7}}
    options = exchange_name(load(content)).options
    assert options == {
        "rank": 4, "alpha": 8.0, "targets": "q_proj,v_proj", "dropout": 0.0, "train": "both", "seed": 7,
        "base": "float32",
    }  # fmt: skip
    assert exchange_name(load(run(tmp_path, adapter={"alpha": 5.0}))).options["alpha"] == 5.0


def test_the_whole_model_travels_unless_the_run_file_says_otherwise(tmp_path: Path) -> None:
    assert exchange_name(load(run(tmp_path))).kind == "full"
    assert exchange_name(load(run(tmp_path, train={"layers": [0, -1]}))).options["layers"] == "0,-1"


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"adapter": {"targets": ["q_prj"]}}, "training.adapter: adapter target 'q_prj' names no linear layer"),
        ({"train": {"layers": [2]}}, "names layer 2, but the model has layers 0 to 1"),
        ({"train": {}}, "names no layers, and embeddings is false"),
        ({"train": {"layers": [0]}, "adapter": {}}, "is given, and training.adapter too; leave one of them out"),
        ({"adapter": {"rank": 0}}, "training.adapter.rank: is 0, but must be a whole number from 1 to 4096"),
        ({"adapter": {"base": "int4"}}, "training.adapter.base: is 'int4'"),
    ],
    ids=["target", "layer", "nothing", "both", "rank", "base"],
)
def test_an_exchange_that_cannot_be_is_refused_with_a_remedy(
    tmp_path: Path, training: dict[str, Any], words: str
) -> None:
    assert words in problems(run(tmp_path, **training))


def test_adapters_beside_an_untrained_model_are_warned_of(tmp_path: Path) -> None:
    plan = resolve(load(run(tmp_path, adapter={})), purpose=Purpose.SERVE)
    assert any("it is made from scratch" in str(warning) for warning in plan.warnings)


def test_a_masked_model_is_warned_of(tmp_path: Path) -> None:
    model = MODEL | {"architecture": "bert", "problem": "causal_lm"}
    plan, _ = verify(parse(json.dumps(run(tmp_path, model)).encode(), "run.yaml"), purpose=Purpose.SERVE)
    assert any("makes a bert predict the next token" in str(warning) for warning in plan.warnings)


def test_a_decoder_with_the_key_is_decoder_is_not_warned_of(tmp_path: Path) -> None:
    config = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "intermediate_size": 64}
    model = {"architecture": "gpt_neox", "config": config}
    plan, _ = verify(parse(json.dumps(run(tmp_path, model)).encode(), "run.yaml"), purpose=Purpose.SERVE)
    assert not any("predict the next token" in str(warning) for warning in plan.warnings)


def test_the_estimate_counts_the_base_once_and_the_adapters_often(tmp_path: Path) -> None:
    content = run(tmp_path, adapter={"rank": 2, "base": "bfloat16"})
    plan, cost = verify(parse(json.dumps(content).encode(), "run.yaml"), purpose=Purpose.SERVE)
    sizes = cost.sizes
    assert sizes.base_bytes == 4 * sizes.parameters
    assert sizes.snapshot_bytes == 4 * sizes.trained
    assert sizes.trained < sizes.parameters / 4
    _, full = verify(parse(json.dumps(run(tmp_path)).encode(), "run.yaml"), purpose=Purpose.SERVE)
    assert cost.worker_memory_bytes < full.worker_memory_bytes
    assert plan.exchange(describe(MODEL, 258, 32)).trained == sizes.trained


def test_a_contribution_of_a_model_of_124_million_parameters_is_small(tmp_path: Path) -> None:
    """Rank 16 on all linear layers, in four bits."""
    content = run(tmp_path, adapter={"rank": 16}, compression="int4")
    plan = resolve(load(content), purpose=Purpose.SERVE)
    sizes = {"hidden_size": 768, "num_layers": 12, "num_heads": 12}
    model = describe({"architecture": "gpt2", "config": sizes}, 50257, 1024)
    assert payload_bytes(plan.compression, plan.exchange(model).exchanged) <= 1.5e6
