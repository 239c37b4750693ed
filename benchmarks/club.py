"""Fine-tune adapters in a club of ten sites, with masks and with epsilon 8, beside training on all their rows at once.

    python benchmarks/club.py [--seeds 3] [--sides "centralised;masks"]
    python benchmarks/club.py --quick    one seed, and a few tasks: does it run?

A GPT-2 of 0.83M parameters is trained on the source and the documentation of this package, byte by byte. Then LoRA
adapters are trained on the files of ten packages of Python's standard library, of which each site has one. Every tenth
block of 2,000 characters is kept for evaluation, and no side trains on it.

*centralised* is a usual loop of AdamW over all rows together, by PyTorch alone. The other sides are `barnraise train`
with a process for each site, and four trustees for masks. All take the same number of tokens, less than one pass over
the rows, and the best of some rates. With epsilon 8 a task is one step with many rows, so that its noise is small, and
Adam takes the steps at the controller. A site's bytes are a tenth of the run's traffic, that of trustees too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _machine
import numpy as np
import torch

from barnraise.ledger.decisions import Judged
from barnraise.ledger.view import LedgerView

ROOT = Path(__file__).parents[1]
SITES = ("idlelib", "asyncio", "email", "tkinter", "xml", "multiprocessing", "importlib", "http", "logging", "urllib")
CONTEXT, BATCH, STEPS, BLOCK = 64, 32, 8, 2000
ROWS = BATCH * STEPS
"""Rows of a task; with epsilon 8 those of four tasks."""

MODEL = {"n_embd": 128, "n_layer": 4, "n_head": 4, "n_positions": CONTEXT, "vocab_size": 258}
ADAPTER = {"kind": "lora", "rank": 4, "targets": ["c_attn", "c_fc"]}
MASKS = {"trustees": 4, "colluding": 1, "most": 10}
BUDGET = {"profile": "example", "epsilon": 8.0, "delta": 1e-5, "clip": 0.25, "uses": 1}
CENTRALISED = "centralised"
RATES = (0.003, 0.01, 0.03)


def local_adamw(rate: float) -> dict[str, Any]:
    """Return the sections of a run whose sites take several steps a task."""
    return {"training": {"batch_size": BATCH, "local_steps": STEPS, "learning_rate": rate}}


def adam_outside(rate: float) -> dict[str, Any]:
    """Return the sections of a run whose sites send noised gradients of a quarter of the rows, for one step of Adam.

    Weight decay would be added to gradients that are clipped to little more than it.
    """
    return {
        "training": {
            "batch_size": ROWS // 4, "local_steps": 1, "learning_rate": 1.0, "inner_optimizer": "sgd",
            "weight_decay": 0.0,
        },
        "aggregation": {"outer_optimizer": "adam", "outer_learning_rate": rate},
    }  # fmt: skip


@dataclass(frozen=True)
class Side:
    """A way to train with sites: the protection, the sections of the run file by rate, and the rates to choose from."""

    privacy: dict[str, Any]
    sections: Callable[[float], dict[str, Any]] = local_adamw
    rates: Sequence[float] = RATES


SIDES = {
    "sites": Side({}),
    "masks": Side({"secure_aggregation": MASKS}),
    "masks, epsilon 8": Side(
        {"secure_aggregation": {**MASKS, "limit": 0.1}, "differential_privacy": BUDGET}, adam_outside, (0.005, 0.01)
    ),
}


@dataclass(frozen=True)
class Outcome:
    """The held-out loss in nats a byte, the epsilon spent (0: none is counted), a site's bytes up and down, seconds."""

    loss: float
    epsilon: float = 0.0
    up: float = 0.0
    down: float = 0.0
    update: float = 0.0
    versions: int = 0
    seconds: float = 0.0


def write_sites(folder: Path) -> None:
    """Write the text of each site, and that of the evaluation, which has blocks of all."""
    library, kept = Path(sysconfig.get_paths()["stdlib"]), list[str]()
    for name in SITES:
        files = sorted(path for path in (library / name).rglob("*.py") if "test" not in path.parent.name)
        text = "".join(path.read_text("utf-8", "replace") for path in files)
        blocks = [text[start : start + BLOCK] for start in range(0, len(text), BLOCK)]
        kept += blocks[9::10]
        (folder / f"{name}.txt").write_text("".join(block for at, block in enumerate(blocks) if at % 10 != 9))
    (folder / "held_out.txt").write_text("".join(kept))


def rows_of(paths: Sequence[Path]) -> torch.Tensor:
    """Return all rows of the files: int64 [rows, CONTEXT]."""
    text = b"".join(path.read_bytes() for path in paths)
    found = np.frombuffer(text[: len(text) // CONTEXT * CONTEXT], np.uint8).reshape(-1, CONTEXT)
    return torch.from_numpy(found.astype(np.int64))


def fit(module: Any, rows: torch.Tensor, steps: int, batch: int, rate: float, seed: int) -> None:
    """Train with AdamW, a pass after the other in random order."""
    chance, order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.int64)
    values = [one for one in module.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(values, lr=rate, weight_decay=0.01)
    for _ in range(steps):
        if len(order) < batch:
            order = torch.randperm(len(rows), generator=chance)
        ids, order = rows[order[:batch]], order[batch:]
        optimizer.zero_grad()
        module(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(values, 1.0)
        optimizer.step()


def loss_of(module: Any, rows: torch.Tensor) -> float:
    """Return the mean loss of the rows in nats a byte."""
    module.eval()
    with torch.no_grad():
        found = [float(module(input_ids=part, labels=part).loss) * len(part) for part in rows.split(256)]
    module.train()
    return sum(found) / len(rows)


def write_base(folder: Path, steps: int) -> None:
    """Train a model on this package's own text, and leave it in `folder`/base."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from barnraise.data.tokenizers import ByteTokenizer

    torch.manual_seed(0)
    config: Any = GPT2Config(**MODEL, bos_token_id=256, eos_token_id=256, pad_token_id=257)  # type: ignore[arg-type]
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    module: Any = GPT2LMHeadModel(config)
    fit(
        module,
        rows_of([*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "docs").rglob("*.md"))]),
        steps,
        64,
        2e-3,
        0,
    )
    module.save_pretrained(folder / "base")
    for name, content in ByteTokenizer().files().items():
        (folder / "base" / name).write_bytes(content)


def centralised(folder: Path, sites: Sequence[str], steps: int, rate: float, seed: int) -> Outcome:
    """Train adapters on all rows together, with as many tokens as all sites take, in batches of a site's size."""
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2LMHeadModel

    torch.manual_seed(seed)
    wanted = LoraConfig(
        task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=ADAPTER["targets"], fan_in_fan_out=True
    )
    module: Any = get_peft_model(GPT2LMHeadModel.from_pretrained(folder / "base"), wanted)  # type: ignore[arg-type]
    began = time.monotonic()
    fit(module, rows_of([folder / f"{name}.txt" for name in sites]), steps, BATCH, rate, seed)
    taken = time.monotonic() - began
    return Outcome(loss_of(module, rows_of([folder / "held_out.txt"])), seconds=taken)


def run_file(folder: Path, sites: Sequence[str], side: Side, tokens: int, rate: float, seed: int) -> Path:
    sections = side.sections(rate)
    content: dict[str, Any] = {
        "run": {"name": "club", "dir": str(folder / "runs"), "seed": seed},
        "model": {"path": str(folder / "base")},
        "data": {"kind": "site", "context": CONTEXT, "public_held_out": [str(folder / "held_out.txt")]},
        "workers": [{"name": name, "data": {"files": [str(folder / f"{name}.txt")]}} for name in sites],
        "controller": {
            "use_async_training": False, "checkpoint_seconds": 1e6, "lease": 600, "longest_lease": 3600,
        },
        "aggregation": sections.get("aggregation", {}),
        "evaluation": {"times": 4, "rows": 4096},
        "training": {
            "tokens": tokens, "auto_tune": False, "compression": "none", "adapter": ADAPTER, **sections["training"],
        },
        "privacy": side.privacy,
    }  # fmt: skip
    path = folder / "club.json"
    path.write_text(json.dumps(content))
    return path


def play(folder: Path, sites: Sequence[str], side: Side, tokens: int, rate: float, seed: int) -> Outcome:
    """Play a run to its end."""
    path = run_file(folder, sites, side, tokens, rate, seed)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "barnraise.cli.main", "train", str(path), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-4000:])
    end = json.loads(done.stdout.strip().splitlines()[-1])
    with LedgerView(Path(end["run_dir"]) / "ledger.sqlite") as view:
        sizes = [one.claim.num_bytes for _, one in view.replay() if isinstance(one, Judged) and one.tokens]
    spent = (end["privacy"] or {}).get("spent", 0.0)
    return Outcome(
        end["final_loss"], spent, end["bytes_up"] / len(sites), end["bytes_down"] / len(sites),
        statistics.median(sizes), end["versions"], time.monotonic() - began,
    )  # fmt: skip


def told(values: Sequence[float], digits: int = 3) -> str:
    low, middle, high = (f"{each(values):.{digits}f}" for each in (min, statistics.median, max))
    return f"{middle} ({low} to {high})" if len(values) > 1 else middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=8, help="tasks of each site")
    parser.add_argument("--sides", default=";".join([CENTRALISED, *SIDES]))
    parser.add_argument("--folder", type=Path, help="keep the texts, the base and the runs there, and use these again")
    parser.add_argument("--quick", action="store_true", help="does it run? its figures say nothing")
    options = parser.parse_args()
    sites, seeds, tasks, most_rates = SITES, options.seeds, options.tasks, 9
    if options.quick:
        seeds, tasks, most_rates, sites, options.sides = 1, 1, 1, SITES[-3:], "masks, epsilon 8"
    torch.set_num_threads(1)
    print(_machine.look())
    tokens = tasks * len(sites) * ROWS * CONTEXT
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        if not (folder / "base").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            write_sites(folder)
            write_base(folder, 20 if options.quick else 400)
        from transformers import GPT2LMHeadModel

        base = loss_of(GPT2LMHeadModel.from_pretrained(folder / "base"), rows_of([folder / "held_out.txt"]))
        print(f"{tokens:,} tokens, {len(sites)} sites, {seeds} seeds; held-out loss of the base {base:.3f} nats a byte")
        print("| side | rate | held-out loss | epsilon | versions | bytes an update | MB a site, up + down | s |")
        print("|---|---|---|---|---|---|---|---|")
        for side in options.sides.split(";"):

            def outcome(rate: float, seed: int, side: str = side) -> Outcome:
                if side == CENTRALISED:
                    return centralised(folder, sites, tokens // (BATCH * CONTEXT), rate, seed)
                return play(folder, sites, SIDES[side], tokens, rate, seed)

            rates = RATES if side == CENTRALISED else SIDES[side].rates
            first = {rate: outcome(rate, 0) for rate in rates[:most_rates]}
            rate = min(first, key=lambda one: first[one].loss)
            some = [first[rate], *(outcome(rate, seed) for seed in range(1, seeds))]
            print(" ".join(f"{one:g}: {found.loss:.3f}" for one, found in first.items()), file=sys.stderr)
            losses, seconds = told([one.loss for one in some]), told([one.seconds for one in some], 0)
            epsilon = f"{max(one.epsilon for one in some):.2f}" if some[0].epsilon else "-"
            sent = f"{statistics.median(one.up for one in some) / 1e6:.2f} + "
            sent += f"{statistics.median(one.down for one in some) / 1e6:.2f}"
            print(
                f"| {side} | {rate:g} | {losses} | {epsilon} | {some[0].versions} | {some[0].update:,.0f} | {sent} | "
                f"{seconds} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
