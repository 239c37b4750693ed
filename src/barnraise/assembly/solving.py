"""The real skill of a model that was trained on satisfiability: it solves formulas it has never seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnraise.core.errors import ModelError
from barnraise.ledger import RunDirectory

if TYPE_CHECKING:
    from barnraise.data.sat.evaluation import SatScores
    from barnraise.data.shards import Dataset

FEWEST, MOST = 100, 500
"""Formulas to solve; 500 determine a share to about 2 points."""

BUDGET = 2e11
"""Floating-point operations that solving may take: about half a minute on one core, at the pace of small batches."""

BATCH = 125


def solve_held_out(run: RunDirectory) -> SatScores:
    """Let the exported model of `run` solve held-out formulas; the same model and data give the same scores."""
    from barnraise.data.shards import Dataset

    return solve(load_model(run.model), Dataset.open(run.data))


def solve(model: Any, dataset: Dataset) -> SatScores:
    """Let `model` (in evaluation mode) solve held-out formulas of `dataset`."""
    from barnraise.data.sat.evaluation import evaluate
    from barnraise.training.metrics.generation import greedy

    limit = num_formulas(sum(tensor.numel() for tensor in model.parameters()), dataset.meta.context)
    eos = dataset.meta.eos_id
    assert eos is not None

    def generate(prompts: list[list[int]]) -> list[list[int]]:
        return greedy(model, prompts, context=dataset.meta.context, stops=(eos,), batch=BATCH)

    return evaluate(dataset, generate, limit=limit)


def num_formulas(model_size: int, context: int) -> int:
    """Return how many formulas to solve, within BUDGET at 2 operations a parameter and token, FEWEST to MOST.

    >>> num_formulas(390_000, 62), num_formulas(2_000_000, 250), num_formulas(100_000_000, 300)
    (500, 200, 100)
    """
    return max(FEWEST, min(MOST, int(BUDGET / (2 * model_size * context))))


def load_model(folder: Path) -> Any:
    """Load the model in a Hugging Face folder, in evaluation mode; ModelError when it does not load."""
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder} does not load: {error}; make it again with `barnraise export`") from error
