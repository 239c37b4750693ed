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

SEARCHED = {"backtracking": {"at_least": 1}}

Sets = Mapping[str, Mapping[str, Any]]
"""Held-out sets by name: what each has that the data section does not have."""


def of_sizes(*sizes: int) -> Sets:
    """Return sets of formulas that need search, one for each number of variables."""
    return {str(size): SEARCHED | {"variables": [size, size], "names": size, "balanced": True} for size in sizes}


OTHERS: Sets = {
    "ratio 3": SEARCHED | {"clause_ratio": 3, "balanced": False},
    "ratio 6": SEARCHED | {"clause_ratio": 6, "balanced": False},
    "skewed": SEARCHED | {"family": "skewed"},
    "marginal": SEARCHED | {"family": "marginal"},
}
"""Sets that differ from the formulas trained on in ratio or family."""


def beyond(*sizes: int) -> Sets:
    """Return sets of formulas that need search, by their numbers of variables, and OTHERS."""
    return {f"{size}": SEARCHED | {"variables": [size, size]} for size in sizes} | OTHERS


CRAFTED: Sets = {"crafted": {"family": "crafted", "variables": [6, 9], "balanced": False}}
"""Formulas with clauses of several lengths, for prompts of literals; `--uf20` adds SATLIB's smallest."""

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
    sets: Sets = field(default_factory=lambda: of_sizes(*SIZES))
    formulas: int = 14
    budget: float = 1.0


def _stages(tokens: int) -> list[dict[str, Any]]:
    """Return the stages after formulas of 4 variables: 4 or 5 from a sixth of the tokens on, 4 to 6 from two fifths."""
    return [
        {"after": tokens // 6, "variables": [4, 5]},
        {"after": 2 * tokens // 5, "variables": [4, 6]},
    ]


CURRICULUM, GENERAL = "curriculum", "general-literals"

RECIPES: Mapping[str, Recipe] = {
    "base": Recipe("trails, clauses, two thirds searched, 4 layers of 128, rotary, rate 0.001, 14 formulas a step"),
    "steps": Recipe("the trail at each step", {"style": "trail_steps", "context": 256}),
    "literals": Recipe("a token for each literal of a formula", {"prompt": "literals", "context": 256}),
    "natural": Recipe("formulas as they come", {"backtracking": [], "balanced": False}),
    "graded": Recipe("two fifths with four or more backtracks", {"backtracking": GRADED}),
    CURRICULUM: Recipe("first 4 variables, then 4 or 5, then 4 to 6", {"variables": [4, 4]}),
    "names": Recipe("variables named from 1 to 7", {"names": SIZES[-1]}),
    "general": Recipe(
        "4 or 5 variables, named from 1 to 7; formulas unlike those trained on",
        {"variables": [4, 5], "names": 7, "context": 256},
        sets=beyond(4, 5, 6, 7),
    ),
    GENERAL: Recipe(
        "a token for each literal, variables named from 1 to 20, 28 formulas a step; formulas unlike those trained on",
        {"prompt": "literals", "names": 20, "context": 768, "backtracking": GRADED},
        sets=beyond(6, 7, 8) | CRAFTED,
        formulas=28,
    ),
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
    recipe, tokens, sets = RECIPES[name], round(options.tokens), dict(RECIPES[name].sets)
    if name == GENERAL and options.uf20:
        number = len(list(options.uf20.glob("*.cnf")))
        sets["uf20"] = {"files": [str(options.uf20)], "formulas": number, "variables": [20, 20], "balanced": False}
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
        "held_out_sets": [{"name": name, "formulas": options.formulas} | section for name, section in sets.items()],
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
