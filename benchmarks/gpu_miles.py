"""Measure the time of four workers of one card behind slow links to a lone worker's loss, beside DDP and DiLoCo.

    make gpu-miles                                          on a card: every part that runs/gpu-miles.jsonl lacks
    python benchmarks/gpu_miles.py --results FILE --next    only the next part, of at most nine minutes
    python benchmarks/gpu_miles.py --results FILE --part ours-10@0.0012
    python benchmarks/gpu_miles.py --results FILE --list    all parts, and which of them FILE has
    python benchmarks/gpu_miles.py --rehearse               5 million parameters on the CPU; says nothing about a card

GPT-2 with 124 million parameters, built from its config, on Python source that is there already (the standard library
with its tests, PyTorch, NumPy, transformers) as a byte-level BPE that is trained here. A step has 65,536 tokens.

    lone       one worker; its versions are averaged over the last tenth of the run. Its loss is the target
    ours-10    barnraise behind links of 10 Mbit/s, 25 ms one way, as `auto_tune` leaves it; ours-100 behind 100 Mbit/s
    ddp        float32 gradients, averaged each step among four workers, which is a step of 4 x 65,536 tokens
    diloco     DiLoCo, Nesterov outside, 30 steps a round, exchanges in 4 bits

How time is counted. The four workers share one card in turns, so their clock is virtual: each of them trains as fast as
the card does alone, which the part `card` measures. Ours runs in the engine (`simulate --real`): its payloads are real,
their bytes take the links' time, and encoding, hashing and making versions take what the catalog says of a server's
core. DDP and DiLoCo train in turns too; a step takes the card's time, and an exchange what the part `links` measured:
gloo moves real bytes among four processes in network namespaces behind emulated links (root; the first 6 MB of a larger
payload). Where that is impossible, it is 2 (n - 1) / n payloads over the bandwidth; the table says which. DDP hides its
exchange behind its step, and DiLoCo does not pay for encoding. Joining is left out for all.

Every side tries the learning rates of `--rates` on the first seed; the best one by its final loss is trained on the
others (`--seeds`). `card` also measures how long training takes in reality, and sets the tokens of a lone worker such
that each part ends within `--limit` seconds. A part that does not is cut, and nothing of it is kept.
"""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from _exchanges import Exchange, measure
from _gpu_sizes import SIZES, Size, digest
from _races import At, Known, reached
from _reach_report import Row, Share, table
from _rivals import Bench, Recipe, Worker, play
from _sides import Setting, Task
from _sides import play as play_ours
from transformers.utils import logging

WORKERS, DELAY_MS = 4, 25.0
LINKS = (10.0, 100.0)
"""Mbit/s of each worker's link."""

ROUND = 30
"""Steps of a round of DiLoCo (H)."""

DENSITY = "loco64-loco32_overlap"
FIRST = {10.0: 30, 100.0: 10}
"""Steps of a task of our sides by Mbit/s; from these and `DENSITY` on, `auto_tune` adapts both to the links."""

TIMED = 20.0
"""Seconds of steps that `card` times at most, unless two steps take longer; its short run takes five times as many."""

SPARE = 0.7
"""Share of a part's limit that its predicted time may take."""


class Cut(BaseException):
    """The limit of a part is over."""


@dataclass(frozen=True)
class Card:
    """The card: tokens a second alone, parameters of the model, and real seconds of a run's start and of its tokens."""

    name: str
    parameters: int
    rate: float
    start: float
    seconds_a_token: float


@dataclass(frozen=True)
class Trained:
    """One run: seconds at the card's speed (of steps alone where `link` is None), tokens of all, held-out loss."""

    curve: list[tuple[float, float, float]]
    link: float | None = None

    @property
    def loss(self) -> float:
        return self.curve[-1][2]


class Campaign:
    """The parts of the comparison, each of which is played once and kept."""

    def __init__(self, options: argparse.Namespace, size: Size, folder: Path) -> None:
        self.options, self.size, self._known = options, size, Known(options.results)
        self.cuda = torch.cuda.is_available() and not options.rehearse
        self.device = "cuda" if self.cuda else "cpu"
        self.name = torch.cuda.get_device_name() if self.cuda else "the CPU (a rehearsal)"
        self.task: Task = size.task(folder, self.device)
        self._of = [size.name, self.name, torch.__version__, digest(Path(str(self.task.tokenizer)))]

    # The results

    @property
    def card(self) -> Card | None:
        return self._known.get([*self._of, "card"], Card)

    @property
    def tokens(self) -> float:
        """Return the millions of tokens of the lone worker: whole steps, as many as a part's limit allows."""
        wanted, card = self.options.tokens or self.size.tokens, self.card
        if card is None or self.options.tokens:
            return wanted
        allowed = (SPARE * self.options.limit - card.start) / card.seconds_a_token / self.options.excess
        steps = max(1, round(min(wanted * 1e6, allowed) / self.size.step_tokens))
        return steps * self.size.step_tokens / 1e6

    def links(self) -> list[Exchange] | None:
        return self._known.get([*self._of, "links"], list[Exchange])

    def trained(self, side: str, rate: float, seed: int = 0) -> Trained | None:
        return self._known.get(self._key(side, rate, seed), Trained)

    def best(self, side: str) -> float | None:
        """Return the rate with the least final loss on the first seed; None before all were tried."""
        found = {rate: self.trained(side, rate) for rate in self.options.rates}
        losses = {rate: one.loss for rate, one in found.items() if one is not None}
        return min(losses, key=losses.__getitem__) if len(losses) == len(found) else None

    def _key(self, side: str, rate: float, seed: int) -> list[object]:
        return [*self._of, self.tokens, self.options.excess, side, rate, seed]

    # Parts

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each part in order and its state: done, missing, or waiting for rates to be tried."""
        state = {True: "done", False: "missing"}
        yield "card", state[self.card is not None]
        yield "links", state[self.links() is not None]
        for side in SIDES:
            for rate in self.options.rates:
                yield f"{side}@{rate:g}", state[self.trained(side, rate) is not None]
        for seed in range(1, self.options.seeds):
            for side in SIDES:
                best = self.best(side)
                yield f"{side}.{seed}", "waiting" if best is None else state[self.trained(side, best, seed) is not None]

    def play(self, part: str) -> bool:
        """Play a part within the limit and keep its result; False where it was cut."""
        began = time.monotonic()
        signal.signal(signal.SIGALRM, _cut)
        signal.alarm(self.options.limit)
        try:
            key, result, told = self._played(part)
        except Cut:
            print(
                f"{part}: cut after {self.options.limit} s, nothing is kept; give fewer --tokens (millions)", flush=True
            )
            return False
        finally:
            signal.alarm(0)
            gc.collect()
            if self.cuda:
                torch.cuda.empty_cache()
        self._known.add(key, result)
        print(f"{part}: {told}, {time.monotonic() - began:.0f} s", flush=True)
        return True

    def _played(self, part: str) -> tuple[list[object], object, str]:
        if part == "card":
            card = self._card()
            return [*self._of, "card"], card, f"{card.parameters:,} parameters, {card.rate:,.0f} tokens/s"
        if (known := self.card) is None:
            raise SystemExit("the part `card` comes first: all others need its speed")
        if part == "links":
            exchanges = self._links(known.parameters)
            return [*self._of, "links"], exchanges, "\n  ".join(["links", *map(str, exchanges)])
        side, rate, seed = self._chosen(part)
        trained = self._train(side, rate, seed, known)
        return self._key(side, rate, seed), trained, f"loss {trained.loss:.4f} after {trained.curve[-1][0]:,.0f} s"

    def _chosen(self, part: str) -> tuple[str, float, int]:
        side, tried, text = part.partition("@")
        if tried:
            return side, float(text), 0
        side, _, text = part.partition(".")
        if (rate := self.best(side)) is None:
            raise SystemExit(f"{part} takes the best rate of the first seed: play the parts {side}@RATE before")
        return side, rate, int(text)

    def _card(self) -> Card:
        """Measure the speed of a worker's steps, and the real time of a short run of ours."""
        size, began = self.size, time.monotonic()
        with Bench(self.task, 0) as bench:
            start, parameters = time.monotonic() - began, bench.start.numel()
            worker = Worker(bench, Recipe("lone", 1e-6, workers=1, batch=size.rows), 0, lambda done: 1e-6, 1000)
            _seconds(worker, 2)  # the first steps take longer
            steps = _few(size.steps, _seconds(worker, 2) / 2)
            took = _seconds(worker, steps) / steps
            rate = size.step_tokens / took
        del bench, worker
        each = _few(2 * size.steps, took)  # steps of each worker
        began, tokens = time.monotonic(), WORKERS * each * size.step_tokens / 1e6
        name = f"{DENSITY}_h{min(FIRST[LINKS[-1]], each // 2)}_batch{size.rows}_e1"
        play_ours(name, 1e-4, 0, 0, self._setting(LINKS[-1], rate, parameters, tokens))
        spent = time.monotonic() - began - start
        return Card(self.name, parameters, rate, start, max(spent / tokens / 1e6, 1 / rate))

    def _setting(self, mbit: float, rate: float, parameters: int, tokens: float) -> Setting:
        flops = 6.0 * parameters * rate  # the controller evaluates as fast as a worker computes
        return Setting(self.task, tokens, self.options.excess, rate, mbit, DELAY_MS, self.size.evaluations, flops)

    def _links(self, parameters: int) -> list[Exchange]:
        coded = [int(recipe.bytes_a_value(parameters) * parameters) for recipe in (Recipe("ddp", 0.0), *_codecs())]
        kinds = [*zip(("ring", "ring", "up", "down"), coded, strict=True)]
        return [one for mbit in LINKS for one in measure(kinds, mbit, DELAY_MS, WORKERS, self.size.moved)]

    def _train(self, side: str, rate: float, seed: int, card: Card) -> Trained:
        size, tokens, excess = self.size, self.tokens, self.options.excess
        if side.startswith("ours-"):
            mbit = float(side.removeprefix("ours-"))
            whole = tokens * 1e6 * excess / WORKERS / size.step_tokens
            steps = max(1, min(FIRST[mbit], int(whole / 4)))  # a rehearsal takes few
            name = f"{DENSITY}_h{steps}_tuned_momentum100_batch{size.rows}"
            found = play_ours(name, rate, seed, 0, self._setting(mbit, card.rate, card.parameters, tokens))
            return Trained([(at.seconds, at.tokens, at.loss) for at in found.points()], mbit)
        recipe = RECIPES[side](rate, size.rows, excess)
        with Bench(self.task, seed) as bench:
            curve = play(bench, recipe, 1e6 * tokens)
        return Trained([(one.steps * size.step_tokens / card.rate, one.tokens, one.loss) for one in curve])

    # The report

    def share(self, side: str, mbit: float, rate: float, seed: int) -> Share | None:
        """Return the time to the lone worker's loss over its time; None where a run is not there."""
        alone = self.best("lone")
        target = self.trained("lone", alone, seed) if alone is not None else None
        found = self.trained(side, rate, seed)
        if target is None or found is None:
            return None
        points = self._timed(found, side, mbit)
        if at := reached(points, target.loss):
            return Share(at[0] / target.curve[-1][0], True)
        return Share(points[-1].seconds / target.curve[-1][0], False)

    def _timed(self, found: Trained, side: str, mbit: float) -> list[At]:
        """Return the curve with the time of its exchanges."""
        stretch, card = 1.0, self.card
        if found.link is None and side in RECIPES and card is not None:
            recipe = RECIPES[side](0.0, self.size.rows, self.options.excess)
            step = self.size.step_tokens / card.rate
            stretch = recipe.with_ring(self.exchange(recipe, mbit, card.parameters).seconds / step)
        return [At(seconds * stretch, tokens, loss, None) for seconds, tokens, loss in found.curve]

    def exchange(self, recipe: Recipe, mbit: float, parameters: int) -> Exchange:
        """Return the exchange of a rival over a link, as the part `links` found it."""
        num_bytes = int(recipe.bytes_a_value(parameters) * parameters)
        wanted = Exchange("ring", num_bytes, mbit, DELAY_MS, WORKERS)
        known = {(one.kind, one.num_bytes, one.mbit): one for one in self.links() or []}
        return known.get(("ring", num_bytes, mbit), wanted)

    def rows(self) -> Iterator[Row]:
        """Yield the time to the lone worker's loss for each side and link that has results."""
        for side, told in SIDES.items():
            for mbit in LINKS:
                rate = self.best(side)
                if side == "lone" or rate is None or (side.startswith("ours") and side != f"ours-{mbit:g}"):
                    continue
                shares = [self.share(side, mbit, rate, seed) for seed in range(self.options.seeds)]
                if found := [share for share in shares if share is not None]:
                    yield Row(told, mbit, f"rate {rate:g}", found)

    def report(self) -> Iterator[str]:
        """Yield the table, and what it was measured with."""
        card, alone = self.card, self.best("lone")
        lone = self.trained("lone", alone) if alone is not None else None
        if card is None or lone is None or not (rows := list(self.rows())):
            return
        seeds = max(len(row.shares) for row in rows)
        steps = self.tokens * 1e6 / self.size.step_tokens
        yield (
            f"{card.name}: {card.parameters:,} parameters, {card.rate:,.0f} tokens/s alone, "
            f"{self.size.step_tokens:,} tokens a step; a lone worker (rate {alone:g}) takes {lone.curve[-1][0]:,.0f} s "
            f"for {self.tokens:.4g}M tokens ({steps:,.0f} steps) to loss {lone.loss:.4f}; "
            f"{seeds} seed{'s' * (seeds != 1)}, {len(self.options.rates)} rates a side"
        )
        yield from table(rows, "{:g} Mbit/s")
        for side in ("ddp", "diloco"):
            recipe = RECIPES[side](0.0, self.size.rows, 1.0)
            yield from (f"{side}'s exchange: {self.exchange(recipe, mbit, card.parameters)}" for mbit in LINKS)


def _seconds(worker: Worker, steps: int) -> float:
    """Return the time of these steps, which ends by reading their losses."""
    began = time.monotonic()
    worker.trainer.run(worker.batches(steps), 1e-6)
    return time.monotonic() - began


def _few(steps: int, seconds: float) -> int:
    """Return as many of these steps as `TIMED` allows, where each takes the given seconds; two at least."""
    return max(2, min(steps, int(TIMED / seconds)))


def _cut(*_: object) -> None:
    raise Cut


def _codecs() -> list[Recipe]:
    """Return recipes with the codecs of DiLoCo, and of our sides up and down."""
    sparse = [Recipe("sparse", 0.0, codec="sparse_loco", options={"ratio": ratio}) for ratio in (1 / 64, 1 / 32)]
    return [Recipe("diloco", 0.0, codec="int4"), *sparse]


OURS = "barnraise, tuned"
SIDES = {
    "lone": "a lone worker",
    **{f"ours-{mbit:g}": OURS for mbit in LINKS},
    "ddp": "DDP, float32",
    "diloco": f"DiLoCo, int4, H {ROUND}",
}
RECIPES: dict[str, Callable[[float, int, float], Recipe]] = {
    "lone": lambda rate, rows, excess: Recipe("lone", rate, workers=1, batch=rows, average=0.1),
    "ddp": lambda rate, rows, excess: Recipe("ddp", rate, 1, excess, WORKERS, rows, average=0.1),
    "diloco": lambda rate, rows, excess: Recipe("diloco", rate, ROUND, excess, WORKERS, rows, "int4"),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="a file of parts that are done; new ones are added")
    parser.add_argument("--part", help="play this part alone")
    parser.add_argument("--next", action="store_true", help="play the next missing part alone")
    parser.add_argument("--list", action="store_true", help="say which parts there are, and end")
    parser.add_argument("--limit", type=int, default=530, help="seconds of a part, at most (530)")
    parser.add_argument("--tokens", type=float, help="of a lone worker, millions (as many as the limit allows)")
    parser.add_argument("--excess", type=float, default=2.0, help="tokens of four workers over the lone one's (2)")
    parser.add_argument("--rates", help="learning rates that each side tries, with colons between")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, 5 million parameters (minutes)")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    small = options.quick or options.rehearse
    if not torch.cuda.is_available() and not small:
        print(f"skipped: torch {torch.__version__} sees no CUDA device here (`--rehearse` plays it on the CPU)")
        return 0
    size = SIZES["quick" if options.quick else "rehearsal" if options.rehearse else "gpt2"]
    options.rates = [float(rate) for rate in (options.rates or size.rates).split(":")]
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="barnraise-gpu-miles-") as scratch:
        folder = options.results.parent if options.results else Path(scratch)
        campaign, whole = Campaign(options, size, folder), True
        if options.list:
            for part, state in campaign.parts():
                print(f"{part:<24}{state}")
            return 0
        missing = (part for part, state in campaign.parts() if state == "missing")
        for part in [options.part] if options.part else missing:
            whole &= campaign.play(part)
            if options.next:
                break
        for line in campaign.report():
            print(line)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
