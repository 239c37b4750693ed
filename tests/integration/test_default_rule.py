"""The default rule of `serve`, with a member that attacks."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import yaml

from barnraise.account.account import read
from barnraise.ledger import RunDirectory

from .test_liar import HONEST, LIAR, outcome


def test_a_liar_is_kept_out_where_the_run_file_says_nothing(tmp_path: Path) -> None:
    judged, losses = outcome(tmp_path)
    (run_file,) = tmp_path.glob("**/run.yaml")
    section = yaml.safe_load(run_file.read_text())["aggregation"]
    assert section["rule"] == ["clip_median", "nnm", "trimmed_mean"]
    assert (section["f"], section["fallback"]) == (0.3, "mean")
    lies = [one for one in judged if one.node == LIAR and one.verdict == "accepted"]
    honest = median(one.norm for one in judged if one.node in HONEST)
    assert median(one.norm for one in lies) > 5.0 * honest
    assert losses[-1] < losses[0] - 0.2
    found = read(RunDirectory(run_file.parent)).merging
    assert found.nodes > 0
    assert found.f == int(0.3 * found.nodes), "a last version of three has room for no liar"
