"""What the engine costs: tokens a second through barnraise against plain PyTorch loops, side by side.

    python benchmarks/engine.py            one worker against one loop, four workers against two loops

Both sides train the same GPT-Neo on the same rows with the same batch and AdamW, one thread each, subnormals flushed to
zero (barnraise does; a loop that does not loses 20% within 300 steps, as moments fade). They take turns,
and the median of the pairwise ratios is what counts. Targets: >= 98% with one worker, >= 90% with four on two cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from barnraise.ledger.view import LedgerView

MODEL = {"architecture": "gpt_neo", "config": {"hidden_size": 192, "num_layers": 4, "num_heads": 6}}
BATCH, CONTEXT, STEPS = 8, 128, 20

PLAIN = """
import json, sys, time
import numpy as np, torch
torch.set_num_threads(1)
torch.set_flush_denormal(True)
from barnraise.data.shards import Dataset
from barnraise.models.build import build
run, seconds = sys.argv[1], float(sys.argv[2])
config = json.load(open(run + "/manifest.json"))["model"]
rows = Dataset.open(run + "/data")
model = build(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
batch, position, steps, began = {batch}, 0, 0, None
while began is None or time.monotonic() - began < seconds:
    if steps == 5 and began is None:
        began, steps = time.monotonic(), 0
    start = position % (rows.meta.shards[0].rows - batch)
    tokens = torch.from_numpy(rows.rows(0, start, start + batch).astype(np.int64))
    optimizer.zero_grad()
    model(input_ids=tokens, labels=tokens).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    position += batch
    steps += 1
print(json.dumps(steps * batch * rows.meta.context / (time.monotonic() - began)))
"""


def engine(folder: Path, workers: int, tokens: int) -> tuple[float, Path]:
    """Steady tokens a second of a run with `workers` equal workers, and its run directory."""
    names = [{"name": f"w{index}"} for index in range(workers)]
    run_file = {
        "run": {"name": f"bench{workers}", "dir": str(folder)},
        "model": MODEL,
        "data": {"kind": "text", "files": [str(Path(__file__).parents[1] / "src")], "context": CONTEXT},
        "controller": {"evaluations": 1, "checkpoint_seconds": 1e6, "evaluation_rows": 16},
        "workers": names,
        "training": {"tokens": tokens, "batch_size": BATCH, "local_steps": STEPS},
    }
    path = folder / f"bench{workers}.yaml"
    path.write_text(json.dumps(run_file))
    command = [sys.executable, "-m", "barnraise.cli.main", "train", str(path), "--json"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    run = Path(json.loads(result.stdout.splitlines()[-1])["run_dir"])
    with LedgerView(run / "ledger.sqlite") as view:
        times = sorted((d.time, d.tokens) for _, d in view.replay() if getattr(d, "verdict", "") == "accepted")
    warm = 2 * workers  # the first tasks of each worker wait for the others to start
    steady = times[warm:]
    return sum(tokens for _, tokens in steady) / (steady[-1][0] - times[warm - 1][0]), run


def plain(run: Path, loops: int, seconds: float) -> float:
    """Tokens a second of `loops` plain loops at once, together."""
    script = PLAIN.replace("{batch}", str(BATCH))
    command = [sys.executable, "-c", script, str(run), str(seconds)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(loops)]
    return sum(float(process.communicate()[0]) for process in processes)


def compare(folder: Path, workers: int, loops: int, pairs: int, tokens: int) -> None:
    """Print the pairwise ratios of `workers` engine workers against `loops` plain loops."""
    ratios = []
    for pair in range(pairs):
        ours, run = engine(folder, workers, tokens)
        theirs = plain(run, loops, 20.0)
        ratios.append(ours / theirs)
        print(
            f"  pair {pair + 1}: engine {ours:8,.0f} tokens/s   plain {theirs:8,.0f} tokens/s   ratio {ratios[-1]:.3f}"
        )
    print(
        f"{workers} worker(s) against {loops} plain loop(s): median ratio {statistics.median(ratios):.3f}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=600_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), 1, 1, arguments.pairs, arguments.tokens // 2)
        compare(Path(folder), 4, 2, arguments.pairs, arguments.tokens)


if __name__ == "__main__":
    main()
