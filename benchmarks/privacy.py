"""Measure what attacks learn of a member's rows under each protection, beside the protection's cost and the loss.

    python benchmarks/privacy.py [--parts attacks,optimisers,pareto] [--trials 100]

The text is this repository's documentation, cut into BPE tokens of a vocabulary of 2,000 trained on it, and rows of 16
tokens. The model is a GPT-2 of 0.23M parameters with 2 layers of width 64. *attacks*: each attack under protections,
updates of one SGD step on 2 rows. *optimisers*: the token set and the exact text from updates of AdamW after 1 to 32
steps. *pareto*: the F1 of the token set, the time that a protection adds to an update of 4,096 tokens, and the held-out
loss after 30 rounds of 8 workers under it; drawn to docs/research/figures/privacy.png.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from barnraise.cli.attack_privacy import markdown
from barnraise.models.config import describe
from barnraise.privacy.attacks.catalog import ATTACKS, USUAL_PROTECTIONS
from barnraise.privacy.attacks.protections import Protection
from barnraise.privacy.attacks.runner import AttackResult, make_protection, play
from barnraise.privacy.attacks.setting import AttackSetting, LocalTraining

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs/research/figures/privacy.png"
VOCABULARY, LENGTH = 2000, 16
SIZES = {"hidden_size": 64, "num_layers": 2, "num_heads": 4}
TEXT = ("masked", "none", "codec:int8", "noise:0.0001", "noise:0.001", "noise:0.01", "sum:8")
SESSION = ("masked", "none", "noise:0.1", "sum:8", "any_sum:8")
UNDER = {
    "query_tokens": ("none", "codec:topk", "codec:int8", "noise:0.001", "masked", "sum:8"),
    "union_tokens": ("sum:8", "noisy_sum:8:0.01", "noisy_sum:8:0.1"),
    "exact_text": TEXT,
    "subspace": TEXT,
    "inversion": ("masked", "none", "codec:int8", "noise:0.01"),
    "averaging": SESSION,
    "buffer_difference": SESSION,
}
"""The protections under which an attack is played, where they are not the usual ones."""

PARETO = ("none", "codec:topk", "codec:int8", "noise:0.001", "noise:0.01", "noise:0.1", "masked", "noisy_sum:8:0.1")
ROUNDS, WORKERS, TOKENS = 30, 8, 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="attacks,optimisers,pareto")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--attacks", help="attacks of the table, with commas between them; by default all")
    parser.add_argument("--protections", help="its protections, with commas between them")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    trials, rounds = (1, 2) if options.quick else (options.trials, ROUNDS)
    rows, parts = text_rows(), options.parts.split(",")
    if "attacks" in parts:
        names = options.attacks.split(",") if options.attacks else list(ATTACKS.entries)
        protections = options.protections.split(",") if options.protections else None
        tell_attacks(rows, names, protections, trials, options.quick)
    if "optimisers" in parts:
        tell_optimisers(rows, trials, options.quick)
    if "pareto" in parts:
        points = pareto(rows, PARETO[:2] if options.quick else PARETO, trials, rounds)
        if not options.quick:
            draw(points)


def text_rows() -> Any:
    """Return rows of the documentation's text: int64 [n, 16]."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md")))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False))
    ids = np.array(tokenizer.encode(text).ids)
    return ids[: len(ids) // LENGTH * LENGTH].reshape(-1, LENGTH)


def making(rows: Any, training: LocalTraining, **config: Any) -> Callable[[Protection], AttackSetting]:
    """Return a maker of settings on these rows."""
    resolved = describe({"architecture": "gpt2", "config": SIZES | config}, VOCABULARY, LENGTH)
    return lambda protection: AttackSetting(resolved, rows, training, protection)


def tell_attacks(rows: Any, names: list[str], named: list[str] | None, trials: int, quick: bool) -> None:
    make, found = making(rows, LocalTraining(batch_size=2)), list[AttackResult]()
    for name in names:
        under = named or UNDER.get(name, USUAL_PROTECTIONS)
        if ATTACKS.entry(name).declares.sees in ("model", "protocol"):
            continue
        protections = [make_protection(text) for text in (under[:1] if quick else under)]
        found += play(make, [name], protections, trials=trials, each=tell)
    print("\n" + markdown(found), flush=True)


def tell_optimisers(rows: Any, trials: int, quick: bool) -> None:
    for steps in (1,) if quick else (1, 8, 32):
        training = LocalTraining("adamw", {"weight_decay": 0.01}, 1e-3, steps)
        for tied in (True, False):
            print(f"\nAdamW, {steps} steps of one row, {'tied' if tied else 'separate'} output layer", flush=True)
            make = making(rows, training, tie_word_embeddings=tied)
            play(make, ["tokens", "exact_text"], [make_protection("none")], trials=trials, each=tell)


def tell(result: AttackResult) -> None:
    attacked = result.attacked
    print(
        f"  {result.attack:18} {result.protection:18} {attacked.successes:4} of {attacked.trials} "
        f"({attacked.low:.1%} to {attacked.high:.1%}), control {result.control.successes}, score "
        f"{result.mean_score:.3f}, control's {result.mean_control:.3f}, {result.seconds:.2f} s a trial",
        flush=True,
    )


def pareto(rows: Any, protections: tuple[str, ...], trials: int, rounds: int) -> list[tuple[str, float, float, float]]:
    """Return (protection, mean score of the token set, overhead, held-out loss), and print them."""
    make, points = making(rows, LocalTraining(batch_size=2)), list[tuple[str, float, float, float]]()
    step = seconds_of(lambda: make_large(rows), 3)
    for text in protections:
        (result,) = play(make, ["tokens"], [make_protection(text)], trials=trials)
        overhead = protection_seconds(text, rows) / step
        points.append((text, result.mean_score, overhead, trained_loss(text, rows, rounds)))
        best = ", no better than the guess" if result.mean_score <= result.mean_control + 0.02 else ""
        print(
            f"  {text:18} token F1 {result.mean_score:.3f}{best}, +{overhead:.2%}, loss {points[-1][3]:.3f}", flush=True
        )
    kept = efficient(points)
    print(f"Pareto points (no other is at least as good in all three): {', '.join(kept)}", flush=True)
    return points


def efficient(points: list[tuple[str, float, float, float]]) -> list[str]:
    """Return the points that no other one equals or beats in score, overhead and loss (to 0.02, 0.2% and 0.02)."""

    def beats(one: tuple[str, float, float, float], other: tuple[str, float, float, float]) -> bool:
        differences = [(other[1] - one[1]) / 0.02, (other[2] - one[2]) / 0.002, (other[3] - one[3]) / 0.02]
        return min(differences) >= -1.0 and max(differences) > 1.0

    return [one[0] for one in points if not any(beats(other, one) for other in points)]


_LARGE = list[AttackSetting]()


def make_large(rows: Any) -> Any:
    """Compute an update of 4,096 tokens: 8 steps of AdamW on 32 rows."""
    if not _LARGE:
        training = LocalTraining("adamw", {"weight_decay": 0.01}, 1e-3, 8, TOKENS // LENGTH // 8)
        _LARGE.append(making(rows, training)(make_protection("none")))
    return _LARGE[0].update(_LARGE[0].private[: _LARGE[0].training.rows])


def protection_seconds(text: str, rows: Any) -> float:
    """Return the seconds that a member spends on one update's protection; that of a sum's noise is for one member."""
    update, protection = make_large(rows), make_protection(text)
    updates, rng = [update] * protection.members, np.random.default_rng(0)
    plain = seconds_of(lambda: torch.stack(updates).sum(0) if len(updates) > 1 else update.clone(), 9)
    return max(0.0, seconds_of(lambda: protection.seen(updates, rng), 9) - plain) / len(updates)


def seconds_of(work: Callable[[], Any], repeats: int) -> float:
    """Return the median seconds of `work`, after one call that is not counted."""
    work()
    taken = list[float]()
    for _ in range(repeats):
        began = time.thread_time()
        work()
        taken.append(time.thread_time() - began)
    return statistics.median(taken)


def trained_loss(text: str, rows: Any, rounds: int) -> float:
    """Return the held-out loss after rounds of 8 workers whose mean update is applied, each under the protection.

    A masked message is a share of an exact sum: the model is that of the unprotected sum.
    """
    training = LocalTraining("adamw", {"weight_decay": 0.01}, 2e-3, 8, 8)
    protection = make_protection("none" if text == "masked" else text)
    setting, rng = making(rows, training)(protection), np.random.default_rng(1)
    at = setting.start
    for _ in range(rounds):
        updates = [setting.update(member, start=at) for member in setting.draw(rng, WORKERS)]
        if protection.members > 1:
            moved = protection.seen(updates, rng) / WORKERS
        else:
            moved = torch.stack([protection.seen([update], rng) for update in updates]).mean(0)
        at = at - moved
    module, held_out = setting.module(at), torch.from_numpy(setting.public[:512])
    with torch.no_grad():
        loss = float(module(input_ids=held_out, labels=held_out, attention_mask=torch.ones_like(held_out)).loss)
    return loss if math.isfinite(loss) else math.inf


def draw(points: list[tuple[str, float, float, float]]) -> None:
    """Draw the scores against the losses, with a legend that has the overheads."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    kept = efficient(points)
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    marks = "osD^vP*X<>"
    for mark, (name, score, overhead, loss) in zip(marks, points, strict=False):
        colour, place = ("tab:green", 3) if name in kept else ("tab:gray", 2)
        label = f"{name}: +{overhead:.1%}, F1 {score:.2f}, loss {loss:.2f}"
        axes.scatter(loss, score, s=90, marker=mark, color=colour, alpha=0.7, zorder=place, label=label)
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8, frameon=False)
    axes.set_xlabel(f"held-out loss after {ROUNDS} rounds of {WORKERS} workers (nats a token)")
    axes.set_ylabel("F1 of the victim's token set")
    axes.set_title("Attack, loss and time added to an update of 4,096 tokens (green: Pareto points)", fontsize=9)
    axes.set_ylim(-0.03, 1.08)
    figure.tight_layout()
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, dpi=120)
    print(f"drawn to {FIGURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
