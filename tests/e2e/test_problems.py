"""Problems of a user's own, as the user runs them: examples, and machines with and without the problem."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from barnraise.account.account import read
from barnraise.ledger import RunDirectory
from barnraise.ledger.view import LedgerView
from barnraise.models.problems import FILES
from barnraise.verification.verify import verify

from ..campaigns import some

ROOT = Path(__file__).parents[2]
LINE = ROOT / "tests" / "problems.py"

SCRIPT = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("example", sys.argv[1])
example = sys.modules["example"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
import barnraise

run = example.RUN | {"training": example.RUN["training"] | {"tokens": int(sys.argv[3])}}
ending = barnraise.train(run, problem=getattr(example, sys.argv[2])())
print(json.dumps([str(ending.run_dir), ending.first_loss, ending.final_loss]))
"""


def example(name: str, problem: str, tokens: int, folder: Path) -> tuple[RunDirectory, float, float, dict[str, Any]]:
    """Train an example on `tokens` rows; return its run, its losses, and its figures."""
    arguments = [sys.executable, "-c", SCRIPT, str(ROOT / "examples" / name), problem, str(tokens)]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    run_dir, first, final = json.loads(done.stdout.splitlines()[-1])
    figures = json.loads((Path(run_dir) / "model" / "evaluation.json").read_text())
    return RunDirectory(Path(run_dir)), first, final, figures


@pytest.mark.campaign
def test_two_workers_train_an_image_classifier(tmp_path: Path) -> None:
    run, first, final, figures = example("digits.py", "Digits", 12_000, tmp_path)
    assert final < 0.6 * first
    assert figures["accuracy"] > 0.5
    assert len(read(run).nodes) == 2
    assert json.loads((run.model / "problem.json").read_text())["package"] == "digits.py"


@pytest.mark.campaign
def test_two_workers_train_a_diffusion_model(tmp_path: Path) -> None:
    run, first, final, figures = example("diffusion.py", "Moons", 120_000, tmp_path)
    assert final < 0.5 * first
    assert figures["distance"] < 0.6 * figures["distance_of_noise"]
    assert len((run.model / "points.txt").read_text().splitlines()) == 500


def write(folder: Path, **options: Any) -> Path:
    content = {
        "model": {"problem": "line", "problem_options": options},
        "data": {"kind": "rows"},
        "training": {"tokens": 8_000, "batch_size": 10, "local_steps": 5, "learning_rate": 0.02},
        "evaluation": {"times": 3},
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment of a machine that has the problem; return what names it."""
    named = f"line={LINE}:Line"
    monkeypatch.setenv(FILES, named)
    return named


@pytest.mark.campaign
@pytest.mark.slow
def test_a_machine_without_the_problem_declines_and_others_continue(barnraise, known: str, tmp_path: Path) -> None:
    serve = barnraise("serve", str(write(tmp_path)), "--json")
    invite = serve.wait_for(lambda text: (m := re.search(r"barnraise join '(.*)'", text)) and m[1])
    without = barnraise("join", invite, "--name", "bob", "--home", "bob", prefix=["env", "-u", FILES])
    assert without.wait(120) == 1
    said = "the problem 'line' is not installed here; the run needs problems.py with the digest"
    assert said in " ".join(without.text().split())
    with_it = barnraise("join", invite, "--name", "ann", "--home", "ann")
    assert serve.wait() == 0, serve.text() + with_it.text()
    assert with_it.wait(60) == 0, with_it.text()
    result = serve.json()
    assert result["final_loss"] < 0.5 * result["first_loss"]
    with LedgerView(Path(result["run_dir"]) / "ledger.sqlite") as view:
        nodes = {node.node: node for node in view.nodes()}
    assert nodes["ann"].tokens > 0
    assert nodes["bob"].tokens == 0
    assert said in nodes["bob"].reason, "the host is told"


@pytest.mark.slow
@pytest.mark.campaign
def test_a_model_of_texts_from_texts_learns_completions(barnraise, tmp_path: Path) -> None:
    lines = [json.dumps({"prompt": f"{a} plus {b}", "completion": str(a + b)}) for a in range(60) for b in range(20)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    content = {
        "model": {
            "architecture": "t5",
            "config": {"d_model": 32, "num_layers": 1, "num_heads": 2, "d_kv": 16, "d_ff": 64},
        },
        "data": {"kind": "instruct", "files": ["pairs.jsonl"], "context": 32},
        "workers": [{"name": "ann"}],
        "training": {"tokens": 40_000, "batch_size": 8, "local_steps": 5, "learning_rate": 0.01},
        "evaluation": {"times": 2},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(content))
    train = barnraise("train", "run.yaml", "--json")
    assert train.wait() == 0, train.text()
    result = train.json()
    assert result["final_loss"] < 0.5 * result["first_loss"]
    folder = Path(result["run_dir"]) / "model"
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    written = model.generate(torch.tensor([[*b"2 plus 2"]]), max_new_tokens=4)
    assert written[0, 0] == model.generation_config.decoder_start_token_id
    assert verify(RunDirectory(Path(result["run_dir"]))).findings == []


@pytest.mark.slow
@pytest.mark.campaign
def test_a_loss_that_is_nan_on_all_rows_ends_no_worker_and_the_run_says_that_it_waits(
    barnraise, known: str, tmp_path: Path
) -> None:
    path = write(tmp_path, fault="nan", odd_from=-2.0)
    content = json.loads(path.read_text()) | {"workers": [{"name": "ann"}]}
    path.write_text(json.dumps(content))
    train = barnraise("train", str(path))
    said = "the problem Line has a loss or a gradient that is not finite in all steps of a task"
    train.wait_for(lambda text: "the run waits: its workers gave the last 10 tasks back" in " ".join(text.split()))
    text = " ".join(train.text().split())
    assert f"ann gave a task back: {said}" in text
    assert "diverged" not in text
    train.kill()


@pytest.mark.slow
@pytest.mark.parametrize("fault", some(["raises"], ["raises", "nan"]))
def test_a_loss_that_fails_on_some_rows_ends_no_run(barnraise, known: str, fault: str, tmp_path: Path) -> None:
    path = write(tmp_path, fault=fault)
    content = json.loads(path.read_text()) | {"workers": [{"name": "ann"}, {"name": "bob"}]}
    path.write_text(json.dumps(content))
    train = barnraise("train", str(path), "--json")
    assert train.wait() == 0, train.text()
    result = train.json()
    assert result["tokens"] >= 8_000
    certificate = verify(RunDirectory(Path(result["run_dir"])))
    assert certificate.findings == []
