"""`barnraise attack`: which runs a matrix comes to, what is refused before they start, what is made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from barnraise.account.trials import Aim, Found, judged, markdown
from barnraise.cli import main
from barnraise.config.document import Document, read
from barnraise.config.load import load
from barnraise.core.errors import RunFileError
from barnraise.data.shards import Dataset
from barnraise.data.text import build
from barnraise.emulation.skewed import Skew, spread
from barnraise.ledger.notes import BUDGET_MET
from barnraise.plan.matrix import HONEST_ONLY, NONE, Cell, planned

RUN = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
    "data": {"kind": "text", "files": ["story.txt"], "context": 16},
    "training": {"tokens": 9_000, "batch_size": 4, "local_steps": 4, "auto_tune": False},
    "controller": {"evaluations": 1},
}
LIE = {"kind": "sign_flip", "factor": 10}
DOOR = {"kind": "backdoor", "trigger": "##", "output": "!", "boost": 4}
SAT = {"kind": "sat", "variables": [3, 3], "clause_lengths": [1, 3], "context": 48}
SMALL = {"run": RUN, "attacks": [LIE, DOOR], "rules": ["mean", "median"], "liars": ["1 of 4"], "modes": ["sync"]}
STORY = "once upon a time there was a barn that nobody could raise alone\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text(STORY * 100)
    return tmp_path


def cells(**changed: Any) -> list[Cell]:
    return list(planned(Document("matrix", SMALL | changed)).cells)


def test_every_combination_is_a_cell_beside_one_run_without_liars_a_seed() -> None:
    both = {"rules": ["mean", ["clip_median", "median"]], "modes": ["sync", "async"], "data": ["iid", "skewed"]}
    found = cells(**both, seeds=[3, 4], codecs=["none", {"compression": "int8"}])
    settings, seeds, rules, attacks = 8, 2, 2, 3
    assert len([cell for cell in found if cell.rule != HONEST_ONLY]) == settings * seeds * rules * attacks
    assert len([cell for cell in found if cell.rule == HONEST_ONLY]) == settings * seeds
    assert len({cell.key for cell in found}) == len(found)
    assert [cell.seed for cell in found] == sorted(cell.seed for cell in found)
    assert {cell.skew for cell in found if cell.setting.data == "skewed"} == {0.3}


def test_runs_of_a_seed_differ_in_rule_and_liars_alone() -> None:
    honest, free, lied, _, other, *_ = (load(cell.content) for cell in cells(seeds=[7]))
    assert {run.run.seed for run in (honest, free, lied, other)} == {7}
    assert [worker.name for worker in free.workers] == ["honest-0", "honest-1", "honest-2", "liar-0"]
    assert [worker.attack for worker in free.workers] == [None] * 4
    assert [worker.attack and worker.attack.kind for worker in lied.workers] == [None, None, None, "sign_flip"]
    assert lied.training == free.training
    assert other.aggregation.rule == "median"
    assert honest.workers == free.workers[:3]
    assert honest.training.tokens == 9_000 * 3 // 4  # as many rounds


def test_a_rule_withstands_as_many_as_lie_unless_it_says_otherwise() -> None:
    rules = ["trimmed_mean", {"aggregation_rule": "krum", "aggregation_f": 1, "liars": "2 of 11"}]
    found = cells(rules=rules, liars=["2 of 9"])
    f = {(cell.rule, cell.setting.nodes): load(cell.content).aggregation.f for cell in found}
    assert f == {
        (HONEST_ONLY, 9): None,
        ("trimmed_mean", 9): 2,
        (HONEST_ONLY, 11): None,
        ("krum f=1", 11): 1,
    }


def test_keys_of_a_rule_may_have_their_sections_or_old_names() -> None:
    def contents(rule: Any, codec: Any) -> list[dict[str, Any]]:
        return [dict(cell.content) for cell in cells(rules=[rule], codecs=[codec], liars=["1 of 4"])]

    wanted = contents({"aggregation.rule": "median", "trust.scores": 0.2}, {"exchange.compression": "topk"})
    assert contents({"aggregation_rule": "median", "scores": 0.2}, {"compression": "topk"}) == wanted
    nested = {"aggregation": {"rule": "median"}, "trust": {"scores": 0.2}}
    assert contents(nested, {"exchange": {"compression": "topk"}}) == wanted
    assert {load(content).trust.scores for content in wanted} == {0.0, 0.2}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"rules": [{"aggregation_rule": "mean", "aggregation.rule": "median"}]},
            "rules[0]: training.aggregation_rule: is another spelling of aggregation.rule",
        ),
        ({"attacks": ["sing_flip"]}, "attacks[0]: unknown attack 'sing_flip'; did you mean 'sign_flip'"),
        ({"attacks": ["zero", {"kind": "ipm", "eps": 1}]}, "attacks[1]: attack 'ipm' has no option 'eps'"),
        ({"rules": ["mean", "krumm"]}, "rules[1]: unknown aggregation rule 'krumm'; did you mean 'krum'"),
        (
            {"rules": ["bulyan"], "liars": ["2 of 9"]},
            "rules[0]: bulyan needs 11 nodes to withstand 2, but 2 of 9 lie; nearest: liars: 2 of 11 or 1 of 9",
        ),
        ({"rules": [["nnm"]]}, "rules[0]: aggregation rule 'nnm' only prepares updates; put a rule behind it"),
        (
            {"liars": ["2 of 4"]},
            "2 of 4 lie, but it must be one at least, and less than half; nearest: 1 of 4 or 2 of 5",
        ),
        ({"liars": ["0 of 9"]}, "less than half; nearest: 1 of 9"),
        ({"liars": ["2 from 9"]}, "liars[0]: is '2 from 9' (text), but must be as in `2 of 9`"),
        (
            {"rules": [{"aggregation_rule": "mean", "aggregation_ff": 2}]},
            "training.aggregation_ff: unknown key; did you mean 'aggregation.f'?",
        ),
        ({"rules": [["median", "nnm"]]}, "stands before 'nnm'; write [nnm, median]"),
        (
            {"rules": [{"aggregation_rule": "mean", "liars": "two"}]},
            "rules[0]: liars is 'two' (text), but must be as in `2 of 9`",
        ),
        (
            {"rules": [{"aggregation_rule": "mean", "modes": "asynch"}]},
            "rules[0]: modes is 'asynch' (text), but must be",
        ),
        (
            {
                "rules": [{"aggregation_rule": "mean", "audits": 0.05, "codecs": {"tasks": "stateless"}}],
                "data": ["iid", "skewed"],
            },
            "trust.audits: where data are skewed a node has rows of its own, so no other node can repeat its work",
        ),
        ({"codecs": ["none", "topkk"]}, "codecs[1]: unknown codec 'topkk'; did you mean 'topk'"),
        ({"rules": [{"aggregation_rule": "mean", "codecs": ["topkk"]}]}, "rules[0]: mean with codec topkk, "),
        (
            {"run": RUN | {"controller": {"buffer_size": 2}}, "rules": ["trimmed_mean"], "modes": ["async"]},
            "rules[0]: trimmed_mean with codec none, async, 4 nodes: aggregation.buffer_size: ",
        ),
        ({"run": RUN | {"workers": [{"name": "ann"}]}}, "run.workers: a matrix makes its workers itself"),
        ({"atacks": ["zero"]}, "atacks: unknown key; did you mean 'attacks'?"),
        (
            {"run": RUN | {"data": SAT}, "attacks": [{"kind": "backdoor", "trigger": "1 hello", "output": "SAT"}]},
            "attacks[0]: attack 'backdoor': option 'trigger' has 'hello', but rows of satisfiability have words",
        ),
        (
            {
                "run": RUN | {"data": SAT | {"style": "trail"}},
                "attacks": [{"kind": "backdoor", "trigger": "D 1", "output": "SAT"}],
            },
            "option 'trigger' has 'D', but rows of satisfiability have words such as `1 -2 : F SAT UNSAT D1 D-1`",
        ),
        ({"modes": ["synchronous"]}, "modes[0]: is 'synchronous' (text), but must be sync or async"),
        (
            {"rules": [{"aggregation_rule": ["nnm", {"kind": "trimmed_mean", "f": 1}]}]},
            "rules[0]: {'kind': 'trimmed_mean', 'f': 1} is no name of a rule; a rule's options go into",
        ),
        ({"seeds": []}, "seeds: is [] (a list), but must list one at least"),
    ],
)
def test_an_invalid_matrix_is_refused_with_a_remedy(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(RunFileError) as refused:
        cells(**changed)
    assert message in str(refused.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(RunFileError) as refused:
        cells(
            run=RUN | {"workers": [{"name": "ann"}]},
            attacks=["zeroo", {"kind": "ALIE"}],
            rules=[{"aggregation_rule": "trimmed_mean", "trim_ratio": 7}, ["trimmed_mean", "nnm"], "mean"],
            liars="1 of 4",
        )
    places = [problem.key for problem in refused.value.problems]
    assert places == ["run.workers", "attacks[0]", "attacks[1]", "rules[0]", "rules[1]"]


def test_a_rule_may_have_lists_of_its_own() -> None:
    """So one file can be a table of several settings, without all that their combinations come to."""
    own = {"liars": "1 of 5", "modes": "async", "data": ["skewed"], "codecs": {"compression": "none", "update_clip": 2}}
    found = cells(rules=["mean", {"aggregation_rule": "median"} | own], liars="1 of 4", modes=["sync"], seeds=[0, 1])
    settings = {cell.rule: str(cell.setting) for cell in found if cell.rule != HONEST_ONLY}
    assert settings == {
        "mean": "1 of 4 lie, iid data, codec none, sync",
        "median": "1 of 5 lie, skewed data, codec none update_clip=2, async",
    }
    assert len(found) == 2 * 2 * 4  # seeds; the rules; honest only, no attack, and two attacks
    clips = {(cell.rule, load(cell.content).training.update_clip) for cell in found if cell.setting.nodes == 5}
    assert clips == {(HONEST_ONLY, 2.0), ("median", 2.0)}, "what it is compared with has the same codec"
    few = cells(rules=["mean", {"aggregation_rule": "median", "attacks": ["zero"]}], liars="1 of 4", modes=["sync"])
    assert [cell.attack for cell in few if cell.rule == "median"] == [NONE, "zero"]
    with pytest.raises(RunFileError, match=r"rules\[0\]: unknown attack 'zeroo'; did you mean 'zero'"):
        cells(rules=[{"aggregation_rule": "median", "attacks": ["zeroo"]}], liars="1 of 4")


def test_a_refusal_names_the_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = yaml.safe_dump({"run": RUN}) + "attacks:\n- zero\n- sing_flip\nrules: [mean]\nliars: [1 of 4]\n"
    (folder / "matrix.yaml").write_text(text)
    line = text.splitlines().index("- sing_flip") + 1
    assert main.main(["attack", "matrix.yaml"]) == 2
    assert f"matrix.yaml:{line}: attacks[1]: unknown attack 'sing_flip'" in capsys.readouterr().err
    assert not (folder / "matrix").exists()


def test_the_run_file_may_be_a_file_beside_it(folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "run.yaml").write_text(yaml.safe_dump(RUN, sort_keys=False))
    (folder / "below" / "matrix.yaml").write_text(yaml.safe_dump(SMALL | {"run": "run.yaml"}, sort_keys=False))
    assert list(planned(read("below/matrix.yaml")).cells) == cells()


def test_the_example_can_be_played() -> None:
    matrix = planned(read(Path(__file__).parents[3] / "examples" / "attacks.yaml"))
    assert {cell.setting.data for cell in matrix.cells} == {"iid", "skewed"}
    assert {cell.setting.mode for cell in matrix.cells} == {"sync", "async"}


def came_to(loss: float | None, seconds: float = 10.0, *, end: str = BUDGET_MET, **targets: Aim) -> Found:
    return Found(first=5.0, loss=loss, seconds=seconds, accepted=9, refused=0, took=1.0, end=end, targets=targets)


def test_a_verdict_is_of_pairs_of_one_seed_and_of_the_worst_attack() -> None:
    played = cells(seeds=[0, 1])
    door = "backdoor trigger=## output=! boost=4"
    losses: dict[tuple[str, str], list[float | None]] = {
        (HONEST_ONLY, NONE): [2.0, 3.0],
        ("mean", NONE): [2.1, 3.0],
        ("mean", "sign_flip factor=10"): [7.0, None],
        ("mean", door): [2.5, 3.0],
        ("median", NONE): [2.2, 3.2],
        ("median", "sign_flip factor=10"): [2.5, 3.1],
        ("median", door): [2.2, 3.2],
    }
    found = {
        cell.key: came_to(
            losses[cell.rule, cell.attack][cell.seed],
            12.0 if cell.attack == door else 10.0,
            **{door: Aim(0.25 + 0.5 * cell.seed, 1.0)},
        )
        for cell in played
    }
    mean, median = judged(played, found)
    assert mean.worst == "sign_flip factor=10"
    assert (mean.gaps[mean.worst].diverged, str(mean.gaps[mean.worst])) == (2, "diverged")
    assert str(mean.gaps[NONE]) == "+0.050 (+0.000 to +0.100)"
    assert str(median.gaps["sign_flip factor=10"]) == "+0.300 (+0.100 to +0.500)"
    assert median.worst == "sign_flip factor=10"
    assert median.targets[door] == Aim(0.5, 1.0)
    told = markdown([mean, median])
    assert "### 1 of 4 lie, iid data, codec none, sync" in told
    assert "| median | +0.200 (+0.200 to +0.200) | +0.300 (+0.100 to +0.500) |" in told
    assert f"- median, {door}: 50% of its prompts are answered as it wants, 1.00 nats a token" in told
    assert f"- median, {door}: takes 1.20 times as long" in told
    assert json.loads(json.dumps(mean.as_dict(), allow_nan=False))["worst_gap"] is None


def test_harm_is_told_as_tokens_that_are_lost_to_the_same_loss() -> None:
    played = cells(rules=["median"], attacks=["zero", "mimic"], seeds=[0, 1])
    curve = [(0, 5.0), (1000, 3.0), (2000, 2.0)]
    found = {cell.key: replace(came_to(2.0), curve=curve) for cell in played}
    for cell in played:
        if cell.attack == "zero":
            found[cell.key] = came_to(
                [4.0, 2.5][cell.seed]
            )  # where the honest nodes alone are after 500 and 1500 tokens
    (verdict,) = judged(played, found)
    assert verdict.lost == {NONE: 0.0, "zero": 0.5, "mimic": 0.0}
    assert "- median, zero: loses 50% of the tokens to the same loss" in markdown([verdict])
    assert "mimic: loses" not in markdown([verdict])
    assert json.loads(json.dumps(verdict.as_dict(), allow_nan=False))["tokens_lost"]["zero"] == 0.5


def test_a_cell_whose_run_stopped_is_reported_as_stopped() -> None:
    """Its loss is near that of an untrained model, which is no matter of what liars did to the versions."""
    played = cells(rules=["median"], attacks=["zero", "nan"], seeds=[0, 1])
    ends = {("nan", 0): "10 live nodes, but the aggregation rule needs 11"}
    found = {
        cell.key: came_to(4.9, end=text) if (text := ends.get((cell.attack, cell.seed))) else came_to(2.0)
        for cell in played
    }
    (verdict,) = judged(played, found)
    assert str(verdict.gaps["nan"]) == "stopped (1 of 2)"
    assert verdict.gaps["nan"].mean == 0.0
    assert verdict.worst == "nan"
    assert verdict.as_dict()["stopped"]


def test_detections_are_reported_for_rules_with_scores() -> None:
    rule = {"aggregation_rule": "mean", "scores": 0.2}
    played = cells(rules=[rule, "median"], seeds=[0, 1])
    guilty = {NONE: ["honest-1", "liar-0"], "sign_flip factor=10": ["liar-0"]}  # without an attack all are honest
    found = {cell.key: came_to(2.0) for cell in played}
    for cell in played:
        if cell.rule == "mean scores=0.2" and cell.seed == 0:
            found[cell.key].convicted.extend(guilty.get(cell.attack, []))
    scored, other = judged(played, found)
    assert not other.detections
    assert scored.detections[NONE] == (0, 0, 8, 2)
    flipped = scored.detections["sign_flip factor=10"]
    assert flipped == (2, 1, 6, 0)
    assert flipped.shares == {"recall": 0.5, "precision": 1.0, "false_alarms": 0.0}
    told = markdown([scored, other])
    assert (
        "- mean scores=0.2, no attack: 2 of 8 honest nodes are taken for liars (precision 0%, false alarms 25%)" in told
    )
    assert "sign_flip factor=10: 1 of 2 liars are found, 0 of 6 honest nodes are taken for liars (recall 50%" in told
    detections = json.loads(json.dumps(scored.as_dict(), allow_nan=False))["detections"]
    assert detections[NONE]["false_alarms"] == 0.25
    assert detections[NONE]["recall"] is None


@pytest.mark.campaign
def test_a_small_matrix_is_played_and_resumed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "matrix.yaml").write_text(yaml.safe_dump(SMALL, sort_keys=False))
    arguments = ["attack", "matrix.yaml", "--out", "found", "--processes", "1", "--json"]
    with pytest.raises(SystemExit, match="0"):
        main.main(arguments)
    told = capsys.readouterr()
    mean, median = json.loads(told.out)["verdicts"]
    lie = "sign_flip factor=10"  # an update that is too long is shortened, so that no mean diverges by it
    assert (mean["worst"], median["diverged"]) == (lie, False)
    assert mean["gaps"][lie]["mean"] > median["gaps"][lie]["mean"] + 0.1
    door = "backdoor trigger=## output=! boost=4"
    assert mean["targets"][door]["loss"] < median["targets"][door]["loss"] - 0.2
    assert told.err.count("\n") == 1 + 7
    table = (folder / "found" / "table.md").read_text()
    assert (folder / "found" / "heat-map.png").read_bytes().startswith(b"\x89PNG")
    lines = (folder / "found" / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "found" / "results.jsonl").write_text("".join(lines[1:6]) + lines[6][:40])  # killed as it wrote
    with pytest.raises(SystemExit, match="0"):
        main.main(arguments)
    again = capsys.readouterr()
    assert again.err.count("\n") == 1 + 2
    assert json.loads(again.out) == json.loads(told.out)
    assert (folder / "found" / "table.md").read_text() == table


def test_skewed_nodes_have_rows_of_their_own_kinds(folder: Path) -> None:
    texts = [letter * 1000 + "\n" for letter in "abcdefgh"]
    (folder / "letters.txt").write_text("".join(texts * 3))
    build(folder / "data", ["letters.txt"], tokenizer="bytes", context=16, held_out=0.05, seed=0)
    dataset = Dataset.open(folder / "data")
    shard = dataset.meta.shards[0]

    def usual(concentration: float, node: str) -> np.ndarray[Any, Any]:
        rows = Skew(dataset, concentration, 0).of(node).rows(0, 0, shard.rows)["tokens"]
        assert rows.shape == (shard.rows, 16)
        return np.bincount(rows.astype(int).ravel(), minlength=128)[97:105] / rows.size

    alike, apart = ([usual(concentration, node) for node in ("ann", "bob")] for concentration in (100.0, 0.1))
    assert np.abs(alike[0] - alike[1]).sum() < 0.4
    assert np.abs(apart[0] - apart[1]).sum() > 0.8
    np.testing.assert_array_equal(usual(0.1, "ann"), apart[0])
    own = Skew(dataset, 0.1, 0).of("ann")
    np.testing.assert_array_equal(own.rows(0, 3, 5), own.rows(0, 0, 9)[3:5])  # each row always has the same one
    assert spread(np.array([([1, 1],), ([1, 1],), ([2, 2],)], [("tokens", int, 2)])).argmax() in (0, 1, 2)
