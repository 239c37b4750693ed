"""Plays the trials of attacks under protections, and counts their successes beside those of the control."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from barnraise.core.errors import InputError
from barnraise.privacy.attacks.catalog import ATTACKS, PROTECTIONS, parse_protection
from barnraise.privacy.attacks.statistics import Share, ShareComparison, compare

if TYPE_CHECKING:
    from barnraise.privacy.attacks.base import PrivacyAttack
    from barnraise.privacy.attacks.protections import Protection
    from barnraise.privacy.attacks.setting import AttackSetting

MOST_TRIALS = 1_000_000


@dataclass(frozen=True)
class AttackResult:
    """The outcome of one attack under one protection.

    `mean_score` and `mean_control` are means of the trials' scores, and `seconds` is the time of a trial.
    `figures` are the attack's own.
    """

    attack: str
    protection: str
    threshold: float
    attacked: Share
    control: Share
    comparison: ShareComparison
    mean_score: float
    mean_control: float
    seconds: float
    figures: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def make_protection(text: str) -> Protection:
    """Make the protection written as NAME:VALUE:VALUE (see `parse_protection`)."""
    name, options = parse_protection(text)
    made = cast("Protection", PROTECTIONS.load(name)(**options))
    made.name = text
    return made


def play(
    setting_of: Callable[[Protection], AttackSetting],
    attacks: Sequence[str],
    protections: Sequence[Protection],
    *,
    trials: int = 100,
    seed: int = 0,
    each: Callable[[AttackResult], None] = lambda result: None,
) -> list[AttackResult]:
    """Play `trials` trials of each attack under each protection.

    All protections meet the same victims: the trial's number, the attack and `seed` determine them. `setting_of` makes
    the setting with a protection, and `each` is called with every result as soon as it is there. Raises InputError
    before the first trial when a name is unknown or a number is out of range.
    """
    if not 1 <= trials <= MOST_TRIALS:
        raise InputError(f"{trials} trials are not from 1 to {MOST_TRIALS:,}; 100 give an interval of 0 to 3.6% for 0")
    for name in attacks:
        ATTACKS.resolve(name, {})
    results = []
    for protection in protections:
        setting = setting_of(protection)
        for name in attacks:
            results.append(play_one(name, setting, trials, seed))
            each(results[-1])
    return results


def play_one(name: str, setting: AttackSetting, trials: int, seed: int) -> AttackResult:
    """Play the trials of the attack `name` in a setting."""
    attack = cast("PrivacyAttack", ATTACKS.create(name))
    threshold, word = ATTACKS.entry(name).declares.threshold, zlib.crc32(name.encode())
    began = time.perf_counter()
    attack.prepare(setting, np.random.default_rng([seed, word]))
    found = [attack.trial(setting, np.random.default_rng([seed, word, number])) for number in range(trials)]
    seconds = (time.perf_counter() - began) / trials
    won = sum(trial.score >= threshold for trial in found)
    guessed = sum(trial.control >= threshold for trial in found)
    return AttackResult(
        attack=name,
        protection=setting.protection.name,
        threshold=threshold,
        attacked=Share.of(won, trials),
        control=Share.of(guessed, trials),
        comparison=compare(won, trials, guessed, trials),
        mean_score=float(np.mean([trial.score for trial in found])),
        mean_control=float(np.mean([trial.control for trial in found])),
        seconds=seconds,
        figures=dict(attack.figures()),
    )
