"""The commands as a user's script calls them: plain scripts, without `if __name__ == "__main__"`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRAIN = """
import json, signal
import barnraise

mine = lambda number, frame: None
signal.signal(signal.SIGTERM, mine)

def say(text):
    print(text, flush=True)

ending = barnraise.train("run.yaml", say=say)
losses = ending.first_loss, ending.final_loss
print(json.dumps([str(ending.run_dir), str(ending.model_dir), *losses, ending.interrupted]))
assert signal.getsignal(signal.SIGTERM) is mine
"""

SERVE_AND_JOIN = """
import json, queue, threading
import barnraise
from barnraise.config import load

invites, endings = queue.Queue(), queue.Queue()

def serve():
    try:
        endings.put(barnraise.serve(load("run.yaml"), uses=1, hours=1, invited=invites.put))
    except BaseException as error:
        endings.put(error)

threading.Thread(target=serve, daemon=True).start()
outcome = barnraise.join(invites.get(timeout=60), name="guest", threads=1, home="home", say=print)
ending = endings.get(timeout=60)
nodes = [node.node for node in ending.account.nodes]
print(json.dumps([outcome.final, outcome.reason, nodes, ending.account.finished, ending.report.is_file()]))
"""


def start(script: str, folder: Path) -> subprocess.Popen[str]:
    path = folder / "script.py"
    path.write_text(script)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, str(path)], cwd=folder, stdout=subprocess.PIPE, text=True, env=environment)


def last(process: subprocess.Popen[str]) -> list[Any]:
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    found: list[Any] = json.loads(out.splitlines()[-1])
    return found


@pytest.mark.slow
def test_a_script_trains(run_file, tmp_path: Path) -> None:
    run_file()
    run_dir, model_dir, first, final, interrupted = last(start(TRAIN, tmp_path))
    assert final < first - 0.5
    assert not interrupted
    assert Path(model_dir) == Path(run_dir) / "model"
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(model_dir)


@pytest.mark.campaign
@pytest.mark.slow
def test_a_script_that_is_interrupted_is_told_so(run_file, tmp_path: Path) -> None:
    run_file(training={"tokens": 50_000_000, "batch_size": 4, "local_steps": 5})
    process = start(TRAIN, tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "version 0: loss" in line:
            break
    process.send_signal(signal.SIGINT)
    run_dir, model_dir, _, _, interrupted = last(process)
    assert interrupted
    assert model_dir == "None"
    assert not (Path(run_dir) / "model").exists()


@pytest.mark.campaign
@pytest.mark.slow
def test_a_script_serves_in_a_thread_and_joins(run_file, tmp_path: Path) -> None:
    run_file(workers=[], training={"tokens": 40_000, "batch_size": 4, "local_steps": 5})
    final, reason, nodes, finished, reported = last(start(SERVE_AND_JOIN, tmp_path))
    assert final, reason
    assert nodes == ["guest"]
    assert "token budget" in finished
    assert reported
