"""The parts of `benchmarks/sat_search.py` that need no training: its recipes, their data, and its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def search(import_benchmark: Any) -> Any:
    return import_benchmark("sat_search")


def tried(search: Any, *shares: tuple[int, int], end: str = "done") -> Any:
    """Return a trial of `base` with points a million tokens apart, with these counts of 100 for each size."""
    import _sat_loop

    sizes = list(search.RECIPES["base"].sets)
    curve = [
        _sat_loop.Point(place * 1_000_000, 10.0 * place, 1.0, dict.fromkeys(sizes, _sat_loop.Score(100, *pair)))
        for place, pair in enumerate(shares, start=1)
    ]
    return search.Tried("base", "a machine", 800_000, 14.2, len(shares) * 1_000_000, curve, end)


def test_each_recipe_makes_a_run_that_can_work(search: Any, tmp_path: Path) -> None:
    options = search.arguments().parse_args(["--tokens", "1e6"])
    folders = {}
    for name in search.RECIPES:
        plan = search.plan_of(name, options)
        folders[name] = search.dataset_folder(plan, tmp_path)
        sets = [found.name for found in plan.run_file.data.held_out_sets]
        assert sets == list(search.RECIPES[name].sets)
        assert sets == ["4", "5", "6", "7"] or name.startswith("general")
    assert len({folders[name] for name in ("base", "learnt", "layers-8", "rate-2e-3", "batch-56", "long")}) == 1
    apart = ("base", "steps", "literals", "natural", "graded", "curriculum", "names")
    assert len({folders[name] for name in apart}) == len(apart)


def test_the_table_tells_a_trial_that_was_cut(search: Any) -> None:
    lines = list(search.reached([tried(search, (50, 0), (97, 91), end="cut")]))
    assert len(lines) == 3
    assert "| 2.0M of 2.0M (cut) | 100,000 |" in lines[2]
    assert lines[2].count("97 (92 to 99) / 91 (84 to 95)") == 4


def test_the_tokens_are_those_of_the_first_point_with_both_targets(search: Any) -> None:
    whole = tried(search, (50, 0), (95, 90), (99, 99))
    missed = tried(search, (99, 40), (94, 89), (90, 80))
    first, second = list(search.passed([whole, missed]))[2:]
    assert first == "| base | 2.0M | 2.0M | 2.0M | 2.0M |"
    assert second.count("no: 94 / 89 at 2.0M") == 4


def test_trials_with_other_sets_have_a_table_of_their_own(search: Any) -> None:
    import _sat_loop
    from _sat_tables import groups

    base = tried(search, (95, 90))
    scores = {"8": _sat_loop.Score(100, 60, 50), "ratio 6": _sat_loop.Score(100, 90, 80)}
    other = search.Tried("general", "a machine", 1, 1.0, 2, [_sat_loop.Point(2, 1.0, 1.0, scores)], "done")
    [here, there] = groups([base, other])
    assert (here, there) == ([base], [other])
    assert next(search.reached(there)).endswith("| tokens/s | 8 variables | ratio 6 |")
