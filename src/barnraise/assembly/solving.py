"""The real skill of a model that was trained on satisfiability: it solves formulas it has never seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnraise.core.errors import ModelError
from barnraise.ledger import RunDirectory

if TYPE_CHECKING:
    from barnraise.config.schema import RunFile
    from barnraise.data.sat.scores import SatScores
    from barnraise.data.shards import Dataset

FEWEST, MOST = 100, 500
"""Formulas of each held-out set to solve; 500 determine a share to about 2 points."""

BUDGET = 2e11
"""Floating-point operations that solving a set may take: half a minute on one core, at the pace of small batches."""

BATCH = 125

LARGE = 2_000_000
"""Parameters from which on a model solves on a GPU, where the machine has one."""


def solve_held_out(run: RunDirectory, run_file: RunFile) -> SatScores:
    """Let the exported model of `run` solve held-out formulas; the same model and data give the same scores."""
    import torch

    from barnraise.data.shards import Dataset

    model, dataset = load_model(run.model), Dataset.open(run.data)
    if torch.cuda.is_available() and model.num_parameters() >= LARGE:
        try:
            return solve(model.to("cuda"), dataset, run_file)
        except torch.cuda.OutOfMemoryError:  # the GPU has other work
            model.to("cpu")
    return solve(model, dataset, run_file)


def solve(model: Any, dataset: Dataset, run_file: RunFile) -> SatScores:
    """Let `model` (in evaluation mode) solve held-out formulas of `dataset`; draw further traces as `run_file` says."""
    from barnraise.data.sat.evaluation import Sampler, evaluate
    from barnraise.data.sat.scores import Draws
    from barnraise.training.metrics.generation import drawn, greedy

    section = run_file.evaluation
    draws = Draws(section.sat_samples, section.sat_temperature)
    size, eos = sum(tensor.numel() for tensor in model.parameters()), dataset.meta.eos_id
    assert eos is not None
    shared: dict[str, Any] = {"context": dataset.meta.context, "stops": (eos,), "batch": BATCH}

    def generate(prompts: list[list[int]], most: int) -> list[list[int]]:
        return greedy(model, prompts, most=[most] * len(prompts), **shared)

    def draw(prompts: list[list[int]], most: int, number: int) -> list[list[int]]:
        chance: dict[str, Any] = {"temperature": draws.temperature, "seed": number}
        return drawn(model, prompts, most=[most] * len(prompts), **chance, **shared)

    sampler = Sampler(draws, draw) if draws.number > 1 else None
    limit = num_formulas(size, _longest(dataset)) if model.device.type == "cpu" else MOST
    return evaluate(dataset, generate, limit=limit, sampler=sampler)


def _longest(dataset: Dataset) -> int:
    """Return the tokens of an example in the mean, in the held-out set where there are most."""
    from barnraise.data.sat.dataset import held_out_sets

    lengths = [list(map(len, held.rows)) for held in held_out_sets(dataset, FEWEST) if held.rows]
    return max((sum(each) // len(each) for each in lengths), default=dataset.meta.context)


def num_formulas(model_size: int, tokens: int) -> int:
    """Return how many formulas to solve, within BUDGET at 2 operations a parameter and token, FEWEST to MOST.

    >>> num_formulas(390_000, 62), num_formulas(2_000_000, 250), num_formulas(100_000_000, 300)
    (500, 200, 100)
    """
    return max(FEWEST, min(MOST, int(BUDGET / (2 * model_size * tokens))))


def load_model(folder: Path) -> Any:
    """Load the model in a Hugging Face folder, in evaluation mode; ModelError when it does not load."""
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder} does not load: {error}; make it again with `barnraise export`") from error
