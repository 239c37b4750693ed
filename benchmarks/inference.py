"""Measure attacks that infer facts about rows, and a malicious host's acts, with and without protections.

    python benchmarks/inference.py [--trials 100] [--seed 0] [--quick]

The text is this checkout's documentation, cut into BPE tokens of a vocabulary of 2,000 trained on it, and rows of 16
tokens. The model is a GPT-2 of two layers of width 32, and an update has two AdamW steps of two rows. Each attack names
a fact about a victim in each trial, and so does its control. `--quick` plays 7 trials against two protections.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from barnraise.data.batches import Rows
from barnraise.models.config import describe
from barnraise.privacy.attacks.runner import AttackResult, make_protection, play
from barnraise.privacy.attacks.setting import AttackSetting, LocalTraining

ATTACKS = ("membership", "membership_offline", "membership_loss", "property", "malicious_host")
PROTECTIONS = ("none", "noise:0.01", "noise:0.1", "sum:4", "masked")
QUICK_ATTACKS, QUICK_PROTECTIONS = ("property", "malicious_host"), ("none", "masked")
VOCABULARY, LENGTH, ROWS = 2000, 16, 2000
TRAINING = LocalTraining("adamw", {"weight_decay": 0.01}, 2e-3, 2, 2)


def rows() -> Rows:
    """Return the first rows of the documentation's tokens, [ROWS, LENGTH]."""
    pages = sorted((Path(__file__).parents[1] / "docs").rglob("*.md"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False))
    return np.array(tokenizer.encode(text).ids[: ROWS * LENGTH]).reshape(ROWS, LENGTH)


def line(found: AttackResult) -> str:
    share, beside = found.attacked, found.comparison
    more = "".join(f", {name} {value:.3f}" for name, value in found.figures.items())
    return (
        f"| {found.attack} | {found.protection} | {share.successes} of {share.trials} "
        f"({100 * share.low:.0f}% to {100 * share.high:.0f}%) | {found.control.successes} | {beside.test} "
        f"{beside.p_value:.2g} | {beside.effect:.2f} | mean score {found.mean_score:.3f}{more} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="seven trials of two attacks against two protections")
    given = parser.parse_args()
    torch.set_num_threads(1)
    sizes = {"hidden_size": 32, "num_layers": 2, "num_heads": 2}
    config, data = describe({"architecture": "gpt2", "config": sizes}, VOCABULARY, LENGTH), rows()
    print("| attack | protection | successes (95% interval) | control | test, p | Cohen's h | other figures |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    play(
        lambda protection: AttackSetting(config, data, TRAINING, protection, seed=given.seed),
        QUICK_ATTACKS if given.quick else ATTACKS,
        [make_protection(text) for text in (QUICK_PROTECTIONS if given.quick else PROTECTIONS)],
        trials=7 if given.quick else given.trials,
        seed=given.seed,
        each=lambda found: print(line(found), flush=True),
    )


if __name__ == "__main__":
    main()
