"""Models with rotary and with learnt positions learn from rows of trails, also packed, and complete any prompt."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from barnraise.core.types import Batches
from barnraise.data import shards
from barnraise.data.batches import batches
from barnraise.data.sat import dataset as sat
from barnraise.data.sat import evaluation
from barnraise.data.sat.options import SatOptions
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.training.causal_lm import CausalLM
from barnraise.training.local import CPU, tensors
from barnraise.training.metrics.generation import greedy

OPTIONS: dict[str, Any] = {
    "variables": (3, 4), "clause_ratio": 4.0, "clause_lengths": (3, 3), "style": "trail", "heuristic": "lowest",
    "context": 80, "examples": 320, "held_out": 8, "balanced": False,
}  # fmt: skip
SIZES = {"hidden_size": 32, "num_layers": 1, "num_heads": 2}


@pytest.fixture(scope="module", params=[False, True], ids=["one a row", "packed"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> shards.Dataset:
    folder = tmp_path_factory.mktemp("data") / "sat"
    sat.build(folder, SatOptions.of(**OPTIONS, packing=request.param))
    return shards.Dataset.open(folder)


@pytest.mark.parametrize(
    ("name", "own"), [("gpt_neo", {}), ("gpt_neox", {}), ("gptj", {"rotary_dim": 8}), ("llama", {})]
)
def test_a_model_learns_from_trails(dataset: shards.Dataset, name: str, own: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    meta = dataset.meta
    told = {"architecture": name, "config": SIZES | own}
    module = build(describe(told, meta.vocab_size, meta.context, eos_id=meta.eos_id, pad_id=meta.pad_id), 0)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    problem, losses = CausalLM(), []
    for batch in batches([dataset.rows(0, 0, meta.shards[0].rows)], Batches((), 8, 0), meta):
        total, weight = problem.loss(module, tensors(batch, CPU))
        optimizer.zero_grad()
        (total / weight).backward()
        optimizer.step()
        losses.append(total.item() / int(weight))
    assert sum(losses[-5:]) / 5 < 0.6 * losses[0]
    module.eval()
    assert meta.eos_id is not None
    stops = (meta.eos_id,)

    def generate(prompts: list[list[int]], most: int) -> list[list[int]]:
        return greedy(module, prompts, context=meta.context, stops=stops, most=[most] * len(prompts))

    scores = evaluation.evaluate(dataset, generate).sets[0].all
    assert scores.formulas == 8
    assert scores.accepted > 0
