"""Trials of `sat_search.py`: a base recipe for formulas of 4 to 6 variables, and others that change one thing of it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from barnraise.config.aliases import canonical
from barnraise.config.load import nested

DEMO = Path(__file__).parents[1] / "examples/sat-neo.yaml"
"""The run file that the base recipe has its model and its training from."""

SIZES = (4, 5, 6, 7)
"""Variables of the held-out sets; those of the last one are beyond training."""

BACKTRACKING = [{"at_most": 0, "share": 0.34}, {"at_least": 1, "share": 0.66, "satisfiable": 0.5}]
GRADED = [  # no unsatisfiable one of 6,000 formulas drawn has fewer than three backtracks
    {"at_most": 0, "share": 0.15},
    {"at_least": 1, "at_most": 2, "share": 0.25},
    {"at_least": 3, "at_most": 3, "share": 0.2, "satisfiable": 0.5},
    {"at_least": 4, "share": 0.4, "satisfiable": 0.5},
]

GPT_NEO = {
    "architecture": "gpt_neo",
    "config": {
        "hidden_size": 128,
        "num_layers": 4,
        "num_heads": 4,
        "intermediate_size": 512,
        "activation_function": "relu",
        "attention_types": [[["global"], 4]],
        "initializer_range": 0.06,
    },
}


@dataclass(frozen=True)
class Recipe:
    """One trial: `title` says what it changes, and the sections have these changes; a step takes about `formulas`.

    The trial has `budget` times the campaign's tokens.
    """

    title: str
    data: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] | None = None
    formulas: int = 14
    budget: float = 1.0


def _stages(tokens: int) -> list[dict[str, Any]]:
    """Return the stages after formulas of 4 variables: 4 or 5 from a sixth of the tokens on, 4 to 6 from two fifths."""
    return [
        {"after": tokens // 6, "variables": [4, 5]},
        {"after": 2 * tokens // 5, "variables": [4, 6]},
    ]


CURRICULUM = "curriculum"

RECIPES: Mapping[str, Recipe] = {
    "base": Recipe("trails, clauses, two thirds searched, 4 layers of 128, rotary, rate 0.001, 14 formulas a step"),
    "steps": Recipe("the trail at each step", {"style": "trail_steps", "context": 256}),
    "literals": Recipe("a token for each literal of a formula", {"prompt": "literals", "context": 256}),
    "natural": Recipe("formulas as they come", {"backtracking": [], "balanced": False}),
    "graded": Recipe("two fifths with four or more backtracks", {"backtracking": GRADED}),
    CURRICULUM: Recipe("first 4 variables, then 4 or 5, then 4 to 6", {"variables": [4, 4]}),
    "names": Recipe("variables named from 1 to 7", {"names": SIZES[-1]}),
    "layers-6": Recipe(
        "6 layers of 112", config={"hidden_size": 112, "num_layers": 6, "intermediate_size": 448}
    ),
    "layers-8": Recipe("8 layers of 96", config={"hidden_size": 96, "num_layers": 8, "intermediate_size": 384}),
    "learnt": Recipe("GPT-Neo, learnt positions", model=GPT_NEO),
    "rate-5e-4": Recipe("rate 0.0005", training={"learning_rate": 5e-4}),
    "rate-2e-3": Recipe("rate 0.002", training={"learning_rate": 2e-3}),
    "batch-28": Recipe("28 formulas a step", formulas=28),
    "batch-56": Recipe("56 formulas a step", formulas=56),
    "long": Recipe(
        "56 formulas a step, rate 0.002, 4 times the tokens", training={"learning_rate": 2e-3}, formulas=56, budget=4.0
    ),
}  # fmt: skip


def content(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the run file of a trial, with what `--set` says.

    Its tokens are those of the rows to make; the loop trains on them again where it has more. Stages are made in full.
    """
    recipe, tokens = RECIPES[name], round(options.tokens)
    fresh = tokens if name == CURRICULUM else round(min(options.tokens, options.fresh or options.tokens))
    found: dict[str, Any] = yaml.safe_load(DEMO.read_text())
    data = {
        "kind": "sat",
        "variables": [4, 6],
        "clause_ratio": [3.5, 5],
        "clause_lengths": [3, 3],
        "style": "trail",
        "heuristic": "lowest",
        "context": 128,
        "backtracking": BACKTRACKING,
        "held_out": 64,
        "held_out_sets": [
            {"name": str(size), "formulas": options.formulas, "variables": [size, size], "names": size}
            | {"backtracking": {"at_least": 1}, "balanced": True}
            for size in SIZES
        ],
    }
    if name == CURRICULUM:
        data["stages"] = _stages(tokens)
    model = dict(recipe.model or found["model"])
    model["config"] = {**model["config"], **recipe.config}
    training = found["training"] | {"tokens": fresh, "precision": "float32", "local_steps": 32}
    training |= {"batch_size": 1, "warmup_tokens": min(200_000, tokens // 20)}  # the loop counts formulas, not rows
    run_file = {
        "run": {"name": "sat-search", "seed": options.seed},
        "model": model,
        "data": data | recipe.data,
        "training": training | recipe.training,
    }
    for section, keys in canonical(nested(dict(options.set)), run_file).content.items():
        run_file[section] = run_file.get(section, {}) | keys
    return run_file
