"""Draw the curve: the time to a lone worker's loss over its own time, against R, for barnraise and its rivals.

    python benchmarks/reach.py --results runs/reach.jsonl --pictures docs/research/figures      hours; it continues
    python benchmarks/reach.py --results docs/research/figures/reach.jsonl --report      the table of what is there

R = FLOP/s / (bandwidth in bytes/s * tokens a step). A step of B tokens takes 6 N B / FLOP/s seconds and N values of b
bytes take N b / bandwidth, so that an exchange takes b R / 6 steps for any model and any machine. Four equal workers
train a GPT-2 of 125,000 parameters in virtual time with real tensors; a lone worker of their speed, whose versions are
averaged over the last 10% of its run, sets the loss and the time. Its rate and batch are tuned.

Ours runs in the engine, at each R over the link that this R asks for: as `auto` leaves it (one run file for every R,
with the rows that `batch_size: auto` takes there) and by hand. Rivals are in `_rivals.py`: their losses by tokens do
not depend on R, so that each of their trials counts at every R. Every side has the same number of trials at each R on
the first seed; the best one there is trained on the others (`--seeds`, `--orders`). Trials are kept in `--results`, one
a line, in order of their worth: a campaign that is ended early has all sides at R = 1, 10, 100 and 1,000 before more
seeds.

The mapping bends where a run is short. Here a lone worker takes `--tokens` / 128 steps, one of a real run a hundred
times as many. A delay of some steps, rounds of H steps and the start and end of a run weigh more in the short one. A
larger model also trains well on more tokens a step, which lowers R.
"""

from __future__ import annotations

import argparse
import math
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from _races import DATA, At, Known, files, reached
from _reach_report import USUAL_STEP, Row, Share, machines, picture, table
from _rivals import POINTS, Bench, Recipe, play
from _sides import Setting, Task
from _sides import play as play_ours

from barnraise.plan.batch_size import fewest_rows

PARAMETERS = 124_800
STEP_TOKENS = CONTEXT = 128
RATE = 1280.0
"""Tokens a second of a worker: a step takes 0.1 s. The link follows from R; its delay is a hundredth of a step."""

DELAY_MS = 1.0
RATIOS = (100.0, 10.0, 1000.0, 1.0, 30.0, 300.0, 3.0)
"""R in the order in which they are worth their time."""

COARSE = 4
"""How many of the first of `RATIOS` all seeds have before the others are begun."""

SPARSE = {"ratio": 1 / 64}
PEAK = 0.004
"""The rate of all sides of several workers; a lone one's is looked for."""

LONE = [
    Recipe("lone", rate, workers=1, batch=batch, average=0.1)
    for rate, batch in ((0.002, 1), (0.004, 1), (0.003, 4), (0.002, 4), (0.006, 4), (0.01, 4))
]
LATE = ((30, 5), (10, 1), (130, 43))
"""Steps of a round of Streaming DiLoCo, and how late a fragment is taken in."""

INT4: dict[str, Any] = {"excess": 2.0, "codec": "int4"}
RIVALS: dict[str, list[Recipe]] = {
    "SparseLoCo": [Recipe("sparse", PEAK, h, 2.0, codec="sparse_loco", options=SPARSE) for h in (15, 5)],
    "DiLoCo int4": [Recipe("diloco", PEAK, h, **INT4) for h in (30, 10)],
    "MuLoCo int4": [Recipe("diloco", PEAK, h, inner="muon", **INT4) for h in (30, 10)],
    "Streaming DiLoCo int4": [Recipe("streaming", PEAK, h, fragments=3, wait=late, **INT4) for h, late in LATE],
    "HeLoCo int4": [Recipe("heloco", PEAK, h, **INT4) for h in (15, 5)],
    "DiLoCo float32": [Recipe("diloco", PEAK, h, 2.0) for h in (30, 10)],
    "a lone worker with Muon": [Recipe("lone", 0.003, workers=1, average=0.1, inner="muon")],
}
AUTO, MUON, HAND = "ours, auto", "ours, auto, Muon", "ours, by hand"
HOSTED = "ours, auto, controller behind such a link"
TUNED = "loco64-loco16_overlap_h3_tuned"
OURS: dict[str, dict[float, list[str]]] = {
    AUTO: {ratio: [TUNED] for ratio in RATIOS},
    MUON: {ratio: [TUNED + "_muon_batch1"] for ratio in RATIOS},  # without the momentum of the fleet
    HAND: {
        1.0: ["loco8-loco4_overlap_h3_batch1", "int4_overlap_h3_batch1"],
        3.0: ["loco8-loco4_overlap_h3_batch1", "int4_overlap_h3_batch1"],
        10.0: ["loco8-loco4_overlap_h3_batch1", "loco16-loco8_overlap_h2_batch1"],
        30.0: ["loco8-loco4_overlap_h3_batch1", "loco16-loco8_overlap_h3_batch2"],
        100.0: [TUNED + "_batch1", "loco64-loco16_overlap_h5_batch1"],
        300.0: ["loco64-loco32_overlap_h4_batch1", "loco32-loco16_overlap_h3_batch8"],
        1000.0: ["loco64-loco32_overlap_h10_batch1", "loco64-loco32_overlap_h3_batch8"],
    },
    HOSTED: {ratio: [TUNED + "_host"] for ratio in (100.0, 10.0)},
}
EXCESS = 2.0
USUAL = f"_e{EXCESS:g}@{PEAK:g}"
"""Settings of all our sides: twice the lone worker's tokens over all, and the rate."""

SIDES = [
    AUTO, MUON, "SparseLoCo", "DiLoCo int4", "MuLoCo int4", "Streaming DiLoCo int4", HAND, "a lone worker with Muon",
    "HeLoCo int4", "DiLoCo float32", HOSTED,
]  # fmt: skip
"""Sides in the order in which they are trained."""


@dataclass(frozen=True)
class Trained:
    """One trial: time in steps of a worker (a rival's as if exchanges took none), tokens of all, held-out loss."""

    curve: list[tuple[float, float, float]]

    def points(self, stretch: float) -> list[At]:
        return [At(steps * stretch, tokens, loss, None) for steps, tokens, loss in self.curve]

    @property
    def loss(self) -> float:
        return self.curve[-1][2]


class Campaign:
    """Trials that are trained once and kept; with `report` none is trained."""

    def __init__(self, options: Namespace) -> None:
        self.options, self._known = options, Known(options.results)
        self._task = Task(files(options.data), context=CONTEXT)
        self._bench: Bench | None = None
        self._opened: tuple[int, int, str] | None = None

    def rival(self, recipe: Recipe, seed: int = 0, order: int = 0) -> Trained | None:
        """Return the trial of `recipe`, a rival's or a lone worker's."""
        key = [self.options.tokens, self.options.data, seed, order, asdict(recipe)]
        return self._kept(key, lambda: self._train(recipe, seed, order))

    def ours(self, name: str, ratio: float, seed: int = 0, order: int = 0) -> Trained | None:
        """Return the trial of the side `name` of `miles.py` over the link of R = `ratio`."""
        key = [self.options.tokens, self.options.data, seed, order, name, ratio]
        return self._kept(key, lambda: self._engine(name, ratio, seed, order))

    def close(self) -> None:
        if self._bench is not None:
            self._bench.__exit__(None, None, None)
        self._bench = self._opened = None

    def _kept(self, key: list[Any], train: Callable[[], Trained]) -> Trained | None:
        if (found := self._known.get(key, Trained)) is None and not self.options.report:
            began = time.monotonic()
            found = train()
            self._known.add(key, found)
            print(f"{key[2:]}: loss {found.loss:.4f}, {time.monotonic() - began:.0f} s", flush=True)
        return found

    def _train(self, recipe: Recipe, seed: int, order: int) -> Trained:
        bench = self._open(seed, order, recipe.inner)
        curve = play(bench, recipe, 1e6 * self.options.tokens)
        steps = recipe.batch  # a step of more rows takes longer
        return Trained([(one.steps * steps, one.tokens, one.loss) for one in curve])

    def _engine(self, name: str, ratio: float, seed: int, order: int) -> Trained:
        side, _, rate = name.partition("@")
        setting = Setting(self._task, self.options.tokens, EXCESS, RATE, link_mbit(ratio), DELAY_MS, POINTS)
        found = play_ours(side, float(rate), seed, order, setting)
        return Trained([(one.seconds * RATE / STEP_TOKENS, one.tokens, one.loss) for one in found.points()])

    def _open(self, seed: int, order: int, inner: str) -> Bench:
        if self._bench is None or self._opened != (seed, order, inner):
            self.close()
            self._bench = Bench(self._task, seed, order, inner).__enter__()
            self._opened = seed, order, inner
            assert self._bench.start.numel() == PARAMETERS
        return self._bench


def link_mbit(ratio: float) -> float:
    """Return the bandwidth, Mbit/s, at which a worker of `RATE` has R = `ratio`."""
    return 6 * PARAMETERS * RATE / (ratio * STEP_TOKENS) * 8 / 1e6


@dataclass(frozen=True)
class Choice:
    """One way to train at one R: a recipe, or the name of one of our sides."""

    side: str
    ratio: float
    way: Recipe | str

    def share(self, campaign: Campaign, seed: int, order: int) -> Share | None:
        """Return the time to the lone worker's loss over its time; None without a trial, or where it does not fit."""
        alone = best_lone(campaign)
        target = campaign.rival(alone, seed, order) if alone else None
        stretch = self.way.stretch(self.ratio, PARAMETERS) if isinstance(self.way, Recipe) else 1.0
        if stretch == math.inf:
            return None
        if isinstance(self.way, Recipe):
            found = campaign.rival(self.way, seed, order)
        else:
            found = campaign.ours(self.way, self.ratio, seed, order)
        if target is None or found is None:
            return None
        points, whole = found.points(stretch), target.curve[-1][0]
        if at := reached(points, target.loss):
            return Share(at[0] / whole, True)
        return Share(points[-1].seconds / whole, False)


def best_lone(campaign: Campaign) -> Recipe | None:
    """Return the lone worker's best rate and batch on the first seed."""
    found = [(trained.loss, place) for place, one in enumerate(LONE) if (trained := campaign.rival(one))]
    return LONE[min(found)[1]] if found else None


def choices(side: str, ratio: float, tokens: float) -> list[Choice]:
    """Return the trials of a side at one R where a lone worker trains on `tokens` million."""
    if side in RIVALS:
        return [Choice(side, ratio, recipe) for recipe in RIVALS[side]]
    rows, _ = fewest_rows(ratio, STEP_TOKENS, round(1e6 * tokens * EXCESS), least=1)
    names = [name if "_batch" in name else f"{name}_batch{rows}" for name in OURS[side].get(ratio, [])]
    momentum = "" if side == MUON else "_momentum100"  # that of the fleet, which harms Muon
    return [Choice(side, ratio, name + momentum + USUAL) for name in names]


def best(campaign: Campaign, side: str, ratio: float) -> Choice | None:
    """Return the best trial of a side at one R on the first seed; of those that miss the loss, any."""
    found = [
        (share.rank, one)
        for one in choices(side, ratio, campaign.options.tokens)
        if (share := one.share(campaign, 0, 0))
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else None


def train(campaign: Campaign, options: Namespace) -> None:
    """Train all that is missing, what matters most first."""
    more = runs(options)[1:]
    for ratios in (options.ratios[:COARSE], options.ratios[COARSE:]):
        for side in SIDES:
            for ratio in ratios:
                for one in choices(side, ratio, options.tokens):
                    one.share(campaign, 0, 0)
        chosen = [one for side in SIDES for ratio in ratios if (one := best(campaign, side, ratio))]
        for seed, order in more:
            for one in chosen:
                one.share(campaign, seed, order)


def runs(options: Namespace) -> list[tuple[int, int]]:
    """Return all seeds and orders, the first seed's first order first."""
    return [(seed, order) for seed in range(options.seeds) for order in range(options.orders)]


def rows(campaign: Campaign, options: Namespace) -> Iterator[Row]:
    """Yield what the results hold."""
    for side in SIDES:
        for ratio in sorted(options.ratios):
            if (one := best(campaign, side, ratio)) is None:
                continue
            found = [one.share(campaign, seed, order) for seed, order in runs(options)]
            shares = [share for share in found if share is not None]
            yield Row(side, ratio, told(one.way), shares)


def told(way: Recipe | str) -> str:
    """Describe a trial in a few words."""
    if isinstance(way, str):
        name = way.partition("_momentum100")[0].removesuffix(USUAL)
        return f"tuned, {name.rpartition('_')[2]}" if "tuned" in name else name
    return f"H {way.steps}" + (f", {way.wait} late" if way.wait else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, default=4.0, help="of the lone worker, millions")
    parser.add_argument("--data", choices=DATA, default="modules")
    parser.add_argument("--ratios", type=float, nargs="+", default=RATIOS, choices=RATIOS, metavar="R")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--orders", type=int, default=1, help="orders of the rows for each seed")
    parser.add_argument("--report", action="store_true", help="train nothing; tell what the results hold")
    parser.add_argument("--quick", action="store_true", help="does it run? tiny, and its figures say nothing")
    parser.add_argument("--results", type=Path, help="a file of trials that are done; new ones are added")
    parser.add_argument("--pictures", type=Path, help="a folder for the curve and its table")
    options = parser.parse_args()
    if options.quick:
        options.tokens, options.seeds, options.ratios = 0.004, 1, (100.0,)
        for side in RIVALS:
            del RIVALS[side][1:]
        del LONE[1:]
        SIDES.remove(HAND)
    torch.set_num_threads(1)
    campaign = Campaign(options)
    try:
        if not options.report:
            train(campaign, options)
        options.report = True
        found = list(rows(campaign, options))
    finally:
        campaign.close()
    for line in table(found):
        print(line)
    for name, ratio in machines().items():
        print(f"{name}: R = {ratio:,.3g} with {USUAL_STEP:,} tokens a step")
    if options.pictures:
        picture(found, options.pictures)


if __name__ == "__main__":
    main()
