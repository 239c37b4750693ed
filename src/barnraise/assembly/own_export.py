"""The export of a model that a problem of one's own built: its parameters, its options, and what the problem adds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from barnraise.core.errors import InputError, ProblemError, StorageError
from barnraise.data.shards import Dataset
from barnraise.ledger import RunDirectory, StoredCheckpoint
from barnraise.models.chance import seeded
from barnraise.models.exchange.catalog import MODEL
from barnraise.models.exchange.record import Exchange
from barnraise.models.export import whole_model
from barnraise.models.problems import PROBLEM
from barnraise.training.problem import careful
from barnraise.training.problems import problem_of
from barnraise.wire.manifest import Manifest

WEIGHTS, TOLD, FIGURES = "model.safetensors", "problem.json", "evaluation.json"
"""The files: the module's state, the problem with its options and version, its figures on the held-out rows."""

ROWS = 256
"""Rows of a batch of the evaluation."""


def export_own(
    run: RunDirectory,
    folder: Path,
    told: Manifest,
    checkpoint: StoredCheckpoint,
    *,
    form: str,
    warn: Callable[[str], None],
) -> None:
    """Write the model to `folder`, and let its problem evaluate it, sample from it, and add files.

    A problem whose code raises there costs what that would have written, and a warning. Raises InputError for another
    `form` than the whole model, StorageError when the folder cannot be written.
    """
    if form != MODEL:
        raise InputError(f"the run trains a problem with a model of its own; export it as {MODEL}, not as {form}")
    tensors = checkpoint.tensors("parameters", ("average", "parameters"))
    exchange = Exchange.of(told.model, told.exchange)
    module = whole_model(told.model, exchange, tensors.get("average", tensors["parameters"]), run.data).eval()
    problem = problem_of(told.model)
    try:
        from safetensors.torch import save_model

        folder.mkdir(parents=True, exist_ok=True)
        save_model(module, str(folder / WEIGHTS))
        _write(folder / TOLD, told.model[PROBLEM])
    except Exception as error:  # safetensors raises its own error for a full disk
        raise StorageError(f"{folder} cannot be written ({error}); free some space or choose another folder") from error

    def evaluate() -> None:
        dataset = Dataset.open(run.data)
        rows = dataset.held_out()
        batches = (
            problem.batch(rows[start : start + ROWS], dataset.meta, np.random.default_rng(start))
            for start in range(0, len(rows), ROWS)
        )
        arrays = ({name: torch.from_numpy(array) for name, array in batch.items()} for batch in batches)
        if figures := problem.evaluate(module, arrays):
            _write(folder / FIGURES, {name: float(value) for name, value in figures.items()})

    for step in (evaluate, lambda: problem.sample(module, folder), lambda: problem.export(module, folder)):
        try:
            with careful(problem), torch.no_grad(), seeded():
                step()
        except ProblemError as error:
            warn(f"while the model was exported, {error}; its parameters are in {folder / WEIGHTS}")


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
