"""The results of a matrix of attacks: gaps to the runs without liars, verdicts, a table, and a picture's data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import msgspec

from barnraise.ledger.notes import BUDGET_MET
from barnraise.plan.matrix import HONEST_ONLY, NONE, Cell, Setting, is_liar


class Aim(NamedTuple):
    """The success of an attacker with a target: share of prompts, and loss in nats a token."""

    share: float
    loss: float


@dataclass(frozen=True)
class Found:
    """The result of one run.

    `loss` is the last held-out one, None where it is not finite or the run has failed; `seconds` are virtual, `took`
    are real ones. `convicted` are nodes that audits or scores found guilty. `curve` has the finite held-out losses by
    the tokens that were trained on by then, in order.
    """

    first: float
    loss: float | None
    seconds: float
    accepted: int
    refused: int
    took: float
    end: str
    targets: dict[str, Aim] = field(default_factory=dict)
    convicted: list[str] = field(default_factory=list)
    curve: list[tuple[int, float]] = field(default_factory=list)

    @property
    def diverged(self) -> bool:
        """Return whether the model is worse than one that has learnt nothing, or none."""
        return self.loss is None or self.loss > self.first

    @property
    def stopped(self) -> bool:
        """Return whether it could not continue, as where its rule has too few nodes left."""
        return self.loss is not None and self.end != BUDGET_MET


class Gap(NamedTuple):
    """The difference of losses to the same seeds without liars, in nats: mean, least and most.

    Diverged runs, and those that stopped before the budget was met, do not count among `runs`. NaN where none does.
    """

    mean: float
    least: float
    most: float
    diverged: int
    stopped: int
    runs: int

    @property
    def failed(self) -> int:
        return self.diverged + self.stopped

    def as_dict(self) -> dict[str, float | None]:
        """Return the values for JSON, without NaN."""
        return {name: None if math.isnan(value) else value for name, value in self._asdict().items()}

    def __str__(self) -> str:
        for what, count in (("diverged", self.diverged), ("stopped", self.stopped)):
            if count:
                return what if count == self.runs else f"{what} ({count} of {self.runs})"
        if math.isnan(self.mean):
            return "none to compare with"
        spread = f" ({self.least:+.3f} to {self.most:+.3f})" if self.runs > 1 else ""
        return f"{self.mean:+.3f}{spread}"


class Detection(NamedTuple):
    """The detection of liars over all runs: liars, detected ones, honest nodes, and false alarms."""

    liars: int
    found: int
    honest: int
    flagged: int

    @property
    def shares(self) -> dict[str, float | None]:
        """Return recall, precision and the rate of false alarms; None where undefined."""
        told = self.found + self.flagged
        return {
            "recall": self.found / self.liars if self.liars else None,
            "precision": self.found / told if told else None,
            "false_alarms": self.flagged / self.honest if self.honest else None,
        }

    def __str__(self) -> str:
        told = [f"{name.replace('_', ' ')} {share:.0%}" for name, share in self.shares.items() if share is not None]
        found = f"{self.found} of {self.liars} liars are found, " if self.liars else ""
        return f"{found}{self.flagged} of {self.honest} honest nodes are taken for liars ({', '.join(told)})"


@dataclass(frozen=True)
class Verdict:
    """The verdict on one rule in one setting: the gaps under each attack, the worst, and the cost without liars.

    `seconds` are the virtual ones of each attack's runs over those without an attack. `detections` are there where
    audits or scores look for liars. `lost` is the share of its tokens that the run without liars has still to train on,
    in the mean of the seeds, when it reaches the loss that the run with liars ends with.
    """

    setting: Setting
    rule: str
    gaps: Mapping[str, Gap]
    seconds: Mapping[str, float]
    targets: Mapping[str, Aim]
    detections: Mapping[str, Detection]
    lost: Mapping[str, float]

    @property
    def worst(self) -> str:
        """Return the attack with the worst gap; one that makes runs diverge, or stop, is worse than any other."""
        return max(self.attacks, key=lambda name: (self.gaps[name].failed, self.gaps[name].mean))

    @property
    def attacks(self) -> list[str]:
        return [name for name in self.gaps if name != NONE] or [NONE]

    def as_dict(self) -> dict[str, object]:
        """Return the values for programs."""
        found: dict[str, object] = msgspec.to_builtins(
            {
                "setting": self.setting,
                "rule": self.rule,
                "gaps": {name: gap.as_dict() for name, gap in self.gaps.items()},
                "seconds": self.seconds,
                "targets": {name: aim._asdict() for name, aim in self.targets.items()},
                "detections": {name: one._asdict() | one.shares for name, one in self.detections.items()},
                "tokens_lost": self.lost,
                "worst": self.worst,
                "worst_gap": self.gaps[self.worst].as_dict()["mean"],
                "diverged": any(gap.diverged for gap in self.gaps.values()),
                "stopped": any(gap.stopped for gap in self.gaps.values()),
            }
        )
        return found


def judged(cells: Sequence[Cell], found: Mapping[str, Found]) -> list[Verdict]:
    """Return the verdict on each rule in each setting; `found` is by the cells' keys."""
    by = {(cell.setting, cell.rule, cell.attack, cell.seed): found[cell.key] for cell in cells}
    groups = dict.fromkeys((cell.setting, cell.rule) for cell in cells if cell.rule != HONEST_ONLY)
    seeds = list(dict.fromkeys(cell.seed for cell in cells))
    looks = {(cell.setting, cell.rule) for cell in cells if cell.looks}
    verdicts = []
    for setting, rule in groups:
        names = list(dict.fromkeys(cell.attack for cell in cells if (cell.setting, cell.rule) == (setting, rule)))
        honest = [by[setting, HONEST_ONLY, NONE, seed] for seed in seeds]
        runs = {name: [by[setting, rule, name, seed] for seed in seeds] for name in names}
        free = statistics.mean(one.seconds for one in runs[NONE])
        verdicts.append(
            Verdict(
                setting,
                rule,
                {name: _gap(those, honest) for name, those in runs.items()},
                {name: statistics.mean(one.seconds for one in those) / free for name, those in runs.items()},
                {
                    name: _mean([one.targets[name] for one in those])
                    for name, those in runs.items()
                    if name in those[0].targets
                },
                detections={name: _detection(setting, name, those) for name, those in runs.items()}
                if (setting, rule) in looks
                else {},
                lost={name: share for name, those in runs.items() if (share := _lost(those, honest)) is not None},
            )
        )
    return verdicts


def _aims(runs: Sequence[Found], attack: str) -> bool:
    return all(attack in one.targets for one in runs)


def _gap(runs: Sequence[Found], honest: Sequence[Found]) -> Gap:
    diverged, stopped = sum(one.diverged for one in runs), sum(one.stopped and not one.diverged for one in runs)
    gaps = [
        one.loss - other.loss
        for one, other in zip(runs, honest, strict=True)
        if one.loss is not None and other.loss is not None and not one.diverged and not one.stopped
    ]
    if not gaps:
        return Gap(float("nan"), float("nan"), float("nan"), diverged, stopped, len(runs))
    return Gap(statistics.mean(gaps), min(gaps), max(gaps), diverged, stopped, len(runs))


def _lost(runs: Sequence[Found], honest: Sequence[Found]) -> float | None:
    """Return the mean of `tokens_lost` over the seeds that count for the gap; None where there is none."""
    shares = [
        tokens_lost(other.curve, one.loss)
        for one, other in zip(runs, honest, strict=True)
        if one.loss is not None and not one.diverged and not one.stopped and len(other.curve) > 1
    ]
    return statistics.mean(shares) if shares else None


def tokens_lost(curve: Sequence[tuple[int, float]], loss: float) -> float:
    """Return the share of its tokens that remains when a run with this curve (tokens, loss) first has `loss`.

    By linear interpolation; 0 where it never has.

    >>> tokens_lost([(0, 4.0), (100, 2.0), (200, 1.0)], 3.0)
    0.75
    >>> tokens_lost([(0, 4.0), (100, 2.0), (200, 1.0)], 0.5)
    0.0
    """
    whole = curve[-1][0]
    for (begin, above), (end, below) in pairwise(curve):
        if below <= loss:
            part = (above - loss) / (above - below) if above > loss else 0.0
            return 1.0 - (begin + part * (end - begin)) / whole
    return 0.0


def _detection(setting: Setting, attack: str, runs: Sequence[Found]) -> Detection:
    liars = 0 if attack == NONE else setting.liars
    guilty = [liars > 0 and is_liar(name) for one in runs for name in one.convicted]
    found = sum(guilty)
    return Detection(liars * len(runs), found, (setting.nodes - liars) * len(runs), len(guilty) - found)


def _mean(aims: Sequence[Aim]) -> Aim:
    return Aim(*(statistics.mean(values) for values in zip(*aims, strict=True)))


def markdown(verdicts: Sequence[Verdict]) -> str:
    """Return a table for each setting: rules down, attacks across, and the worst of them."""
    blocks = []
    for setting in dict.fromkeys(verdict.setting for verdict in verdicts):
        rows = [verdict for verdict in verdicts if verdict.setting == setting]
        names = list(dict.fromkeys(name for verdict in rows for name in verdict.gaps))
        lines = [f"### {setting}", "", f"| rule | {' | '.join(names)} | worst |", "| --- " * (len(names) + 2) + "|"]
        for verdict in rows:
            cells = [str(verdict.gaps[name]) if name in verdict.gaps else "" for name in names]
            lines.append(f"| {verdict.rule} | {' | '.join(cells)} | {verdict.gaps[verdict.worst]}, {verdict.worst} |")
        told = [f"- {line}" for verdict in rows for line in _told(verdict)]
        blocks.append("\n".join([*lines, *([""] if told else []), *told]))
    return "\n\n".join(blocks) + "\n"


def _told(verdict: Verdict) -> list[str]:
    """Return results other than losses: targets, and time."""
    lines = [
        f"{verdict.rule}, {name}: {aim.share:.0%} of its prompts are answered as it wants, {aim.loss:.2f} nats a token"
        for name, aim in verdict.targets.items()
    ]
    lines += [f"{verdict.rule}, {name}: {detection}" for name, detection in verdict.detections.items()]
    lines += [
        f"{verdict.rule}, {name}: loses {share:.0%} of the tokens to the same loss"
        for name, share in verdict.lost.items()
        if share > NOTABLY_LOST
    ]
    slow = {name: ratio for name, ratio in verdict.seconds.items() if ratio > NOTABLY_SLOWER}
    return lines + [f"{verdict.rule}, {name}: takes {ratio:.2f} times as long" for name, ratio in slow.items()]


NOTABLY_LOST = 0.05
"""Lost share of tokens above which it is reported."""

NOTABLY_SLOWER = 1.1
"""Slowdown under an attack above which it is reported."""
