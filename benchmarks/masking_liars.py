"""Measure liars and lazy members among masked updates: the final loss by aggregation rule and attack.

    python benchmarks/masking_liars.py [--parts liars,lazy] [--seeds 3] [--rounds 40] [--results FILE]

Twenty workers, four of which lie, train a GPT-2 of 70,000 parameters on the bytes of this repository's documentation in
synchronous rounds of 5 AdamW steps on 8 rows of 32 bytes. Each update is rounded to the run's ring (12 bits, the limit
of a run file without one). Groups of two are drawn as a run draws them from its signed entries, and the aggregation
rule reads the mean of each group. No mask is added: `benchmarks/masking.py` checks that the sums under masks are these
to the bit. A group whose sum honest members cannot have is left out, and the rule withstands one attacker fewer then.

*liars*: sign flips, ALIE, and a ring member that adds the largest values against its own update; *beyond* adds values
that no honest member may, so that its group's sum is impossible. A result is the held-out loss in nats a byte above the
loss of the 16 honest workers alone with the mean, with the same first parameters and rows of each worker.

*lazy*: members that send zeros, their first update again, or that of one of five steps. The benchmark scores each group
by the projection of its mean on the version's aggregate, and a member by the mean of its groups' scores. It prints the
area under the curve (AUC) that separates lazy members from honest ones after some rounds: 0.5 says nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import _machine
import numpy as np
import torch
from _races import Known

from barnraise import aggregation
from barnraise.aggregation.base import Rule
from barnraise.aggregation.fallback import without
from barnraise.core.errors import OptionError
from barnraise.emulation.attacks.board import Board, Scene
from barnraise.emulation.attacks.seeing import LittleIsEnough
from barnraise.emulation.attacks.updates import SignFlip
from barnraise.models.config import describe
from barnraise.privacy.attacks.runner import make_protection
from barnraise.privacy.attacks.setting import AttackSetting, LocalTraining
from barnraise.privacy.masking.lists import groups_of
from barnraise.privacy.masking.payload import parse, plain
from barnraise.privacy.masking.ring import Ring
from barnraise.privacy.masking.sums import GroupSums
from barnraise.privacy.masking.terms import MaskTerms
from barnraise.trust.signatures import RunId

ROOT = Path(__file__).parents[1]
SIZES = {"hidden_size": 48, "num_layers": 2, "num_heads": 4}
LENGTH, BATCH, STEPS, RATE = 32, 8, 5, 2e-3
WORKERS, LIARS, GROUP, VALUE_BITS = 20, 4, 2, 12
TARGET = 0.1
"""Nats a byte above honest-only that the target allows."""

SEEN = (5, 10, 20, 40)
"""Rounds after which the scores of members are read."""

RULES: dict[str, tuple[Any, dict[str, Any]]] = {
    "mean": ("mean", {}),
    "median": ("median", {}),
    "geometric_median": ("geometric_median", {}),
    "trimmed_mean, f=4": ("trimmed_mean", {"f": 4}),
    "multi_krum, f=3": ("multi_krum", {"f": 3}),
    "clip_median, nnm, trimmed_mean, f=3 (automatic)": (["clip_median", "nnm", "trimmed_mean"], {"f": 3}),
    "clip_median, nnm, trimmed_mean, f=4": (["clip_median", "nnm", "trimmed_mean"], {"f": 4}),
}
AUTOMATIC = "clip_median, nnm, trimmed_mean, f=3 (automatic)"
ATTACKS = ("none", "sign_flip", "sign_flip 10", "alie", "alie 1.5", "largest", "beyond")
LAZY = ("zero", "stale", "one step of five")


@dataclass(frozen=True)
class Played:
    """The outcome of a run: its held-out loss, the groups left out, versions without change, and AUC by round."""

    loss: float
    left_out: int = 0
    repeated: int = 0
    auc: dict[int, float] = field(default_factory=dict)


class Fleet:
    """Workers, their rows and the ring; `seed` determines the first parameters and the rows of each worker."""

    def __init__(self, seed: int) -> None:
        data = b"\n".join(path.read_bytes() for path in sorted((ROOT / "docs").rglob("*.md")))
        ids = np.frombuffer(data, np.uint8).astype(np.int64)
        rows = ids[: len(ids) // LENGTH * LENGTH].reshape(-1, LENGTH)
        config = describe({"architecture": "gpt2", "config": SIZES}, 256, LENGTH)
        training = LocalTraining("adamw", {"weight_decay": 0.01}, RATE, STEPS, BATCH)
        self.setting = AttackSetting(config, rows, training, make_protection("none"), seed=seed)
        self.seed, self.board, self.first = seed, Board(), dict[int, np.ndarray]()
        self.board.liars |= {f"n{number}" for number in range(LIARS)}
        ring = Ring(VALUE_BITS, 2 * GROUP - 1, 2.0 * RATE * STEPS)
        self.terms = MaskTerms(RunId("bench"), ring, self.setting.layout.size)

    def honest(self, number: int, version: int, at: torch.Tensor, rows: int = STEPS * BATCH) -> np.ndarray:
        """Return the update of a worker; each has rows of its own at each version."""
        rng = np.random.default_rng([self.seed, version, number])
        return self.setting.update(self.setting.draw(rng)[0][:rows], start=at).numpy()

    def words(self, values: np.ndarray) -> np.ndarray:
        return self.terms.ring.quantise(values, self.terms.ring.most_weight)

    def lie(self, attack: str, number: int, version: int, at: torch.Tensor) -> np.ndarray:
        """Return the words of a liar. Honest updates of the version are on the board."""
        ring, scene = self.terms.ring, Scene(f"n{number} {version}", version, self.board)
        if attack == "zero":
            return self.words(np.zeros(self.terms.size, np.float32))
        if attack == "beyond":
            rng = np.random.default_rng([self.seed, version, number])
            words = rng.integers(0, ring.mask + 1, self.terms.num_words).astype(ring.dtype)
            words[0] = ring.most_weight
            return words
        if attack == "one step of five":
            return self.words(self.honest(number, version, at, BATCH))
        own = torch.from_numpy(self.honest(number, version, at))
        if attack == "stale":
            return self.words(self.first.setdefault(number, own.numpy()))
        if attack == "largest":
            return self.words(-np.sign(own.numpy()) * np.float32(ring.clip))
        known = {
            "none": None,
            "sign_flip": SignFlip(1.0),
            "sign_flip 10": SignFlip(10.0),
            "alie": LittleIsEnough(None),
            "alie 1.5": LittleIsEnough(1.5),
        }[attack]
        if known is not None:
            known.update(own, scene)
        return self.words(own.numpy())

    def means(self, version: int, words: Sequence[np.ndarray], group: int) -> Any:
        """Return the groups of a version and the mean of each, or why its sum is impossible."""
        updates = [parse(plain(self.terms, one), self.terms) for one in words]
        named = [(version * WORKERS + place, update.words_digest) for place, update in enumerate(updates)]
        groups = groups_of(version, named, group)
        sums = GroupSums(self.terms, groups)
        for place, update in enumerate(updates):
            sums.add(place, update)
        return groups, sums.means()

    def loss(self, at: torch.Tensor) -> float:
        module, held = self.setting.module(at), torch.from_numpy(self.setting.public[:1024])
        with torch.no_grad():
            found = float(module(input_ids=held, labels=held, attention_mask=torch.ones_like(held)).loss)
        return min(found, 99.0) if found == found else 99.0


def play(rule_name: str, attack: str, group: int, liars: int, rounds: int, seed: int) -> Played:
    """Play one run; without liars the honest ones of the others are alone."""
    torch.set_num_threads(1)
    names, options = RULES[rule_name]
    fleet, rule = Fleet(seed), aggregation.create(names, **options)
    at, scores, lazy = fleet.setting.start, Scores(), set(range(liars))
    members = range(0 if liars else LIARS, WORKERS)
    left_out = repeated = 0
    for version in range(1, rounds + 1):
        honest = {number: fleet.honest(number, version, at) for number in members if number not in lazy}
        for number, update in honest.items():
            fleet.board.post(f"n{number}", version, update)
        words = [
            fleet.words(honest[number]) if number in honest else fleet.lie(attack, number, version, at)
            for number in members
        ]
        groups, means = fleet.means(version, words, group)
        good = [place for place, mean in enumerate(means) if not isinstance(mean, str)]
        left_out += len(means) - len(good)
        moved = aggregate(without(rule, len(means) - len(good)), [means[place] for place in good])
        if moved is None:
            repeated += 1
            continue
        at = at - moved
        for place in good:
            projected = float(np.dot(means[place][0], moved.numpy())) / max(1e-30, float(torch.dot(moved, moved)))
            scores.add([members[one] for one in groups[place]], projected)
        if version in SEEN and liars:
            scores.read(version, lazy)
    return Played(fleet.loss(at), left_out, repeated, scores.auc)


def aggregate(rule: Rule, means: Sequence[tuple[np.ndarray, float]]) -> torch.Tensor | None:
    """Return the aggregate of the groups' means; None where the rule needs more groups."""
    weights = [weight for _, weight in means] if rule.weighted else None
    try:
        return rule([torch.from_numpy(mean) for mean, _ in means], weights)
    except OptionError:
        return None


class Scores:
    """The mean score of the groups that each member was in."""

    def __init__(self) -> None:
        self._of: dict[int, list[float]] = {number: [] for number in range(WORKERS)}
        self.auc: dict[int, float] = {}

    def add(self, members: Sequence[int], score: float) -> None:
        for member in members:
            self._of[member].append(score)

    def read(self, version: int, lazy: set[int]) -> None:
        """Note the share of pairs of a lazy and an honest member in which the lazy one has the lower score."""
        mean = {number: statistics.fmean(found) for number, found in self._of.items() if found}
        pairs = [(mean[one], mean[two]) for one in mean if one in lazy for two in mean if two not in lazy]
        if pairs:
            self.auc[version] = statistics.fmean(1.0 if a < b else 0.5 * (a == b) for a, b in pairs)


def told(values: Sequence[float], digits: int = 3) -> str:
    """Return the median with the least and the most."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="liars,lazy")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--rules", default="", help="some of the rules, by their names, with ; between")
    parser.add_argument("--attacks", default="", help="some of the attacks, with ; between")
    parser.add_argument("--results", type=Path, help="a file of what was found before, which is added to")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    rules, attacks = list(RULES), list(ATTACKS)
    if options.quick:
        options.seeds, options.rounds, rules, attacks = 1, 5, ["mean", AUTOMATIC], ["sign_flip", "largest"]
    rules = [name for name in rules if not options.rules or name in options.rules.split(";")]
    attacks = [name for name in attacks if not options.attacks or name in options.attacks.split(";")]
    print(f"{_machine.look()}; {WORKERS} workers, {LIARS} lie, {options.rounds} rounds, {options.seeds} seeds")
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        ask = partial(played, pool, Known(options.results), options.rounds, options.seeds)
        alone = [one.loss for one in ask([("mean", "none", GROUP, 0)])[0]]
        print(f"16 honest workers alone, mean: {told(alone)} nats a byte", flush=True)
        if "liars" in options.parts.split(","):
            tell_liars(ask, rules, attacks, alone)
        if "lazy" in options.parts.split(","):
            tell_lazy(ask, ["mean", AUTOMATIC], LAZY[:1] if options.quick else LAZY, alone)


def played(
    pool: ProcessPoolExecutor, known: Known, rounds: int, seeds: int, sides: Sequence[tuple[str, str, int, int]]
) -> list[list[Played]]:
    """Return the runs of each side, one for each seed; what is known is not played again."""
    keys = [(*side, rounds, seed) for side in sides for seed in range(seeds)]
    found = {key: known.get(list(key), Played) for key in keys}
    futures = {key: pool.submit(play, *key) for key, run in found.items() if run is None}
    for key, future in futures.items():
        found[key] = future.result()
        known.add(list(key), found[key])
    return [[run for key, run in found.items() if run is not None and key[:4] == side] for side in sides]


def tell_liars(ask: Any, rules: Sequence[str], attacks: Sequence[str], alone: Sequence[float]) -> None:
    """Print the loss above honest-only by rule and attack, for groups and, for the automatic rule, for single rows."""
    sides = [(name, attack, GROUP, LIARS) for name in rules for attack in attacks]
    if AUTOMATIC in rules:
        sides += [(AUTOMATIC, attack, 1, LIARS) for attack in attacks]
    runs = dict(zip(sides, ask(sides), strict=True))
    print(f"loss above honest-only, nats a byte; target <= {TARGET}")
    print(f"| rule | {' | '.join(attacks)} |")
    print(f"|{'---|' * (len(attacks) + 1)}")
    for name, group in dict.fromkeys((side[0], side[2]) for side in sides):
        cells = list[str]()
        for attack in attacks:
            some = runs[name, attack, group, LIARS]
            cell = told([one.loss - base for one, base in zip(some, alone, strict=True)])
            out, same = sum(one.left_out for one in some), sum(one.repeated for one in some)
            cells.append(cell + (f", {out} groups left out, {same} versions without change" if out else ""))
        print(f"| {name}{'' if group == GROUP else ', updates in clear'} | {' | '.join(cells)} |", flush=True)


def tell_lazy(ask: Any, rules: Sequence[str], attacks: Sequence[str], alone: Sequence[float]) -> None:
    """Print the loss above honest-only beside lazy members, and how well the scores of groups separate them."""
    sides = [(name, attack, GROUP, LIARS) for name in rules for attack in attacks]
    print(f"| rule | lazy members | loss above honest-only | {' | '.join(f'AUC, {one} rounds' for one in SEEN)} |")
    print(f"|{'---|' * (len(SEEN) + 3)}")
    for (name, attack, _, _), some in zip(sides, ask(sides), strict=True):
        above = told([one.loss - base for one, base in zip(some, alone, strict=True)])
        aucs = [told([one.auc[at] for one in some], 2) if at in some[0].auc else "-" for at in SEEN]
        print(f"| {name} | {attack} | {above} | {' | '.join(aucs)} |", flush=True)


if __name__ == "__main__":
    main()
