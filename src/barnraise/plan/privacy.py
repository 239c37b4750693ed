"""The noise of a run with differential privacy, chosen for its budget before all else: a run keeps the number."""

from __future__ import annotations

from dataclasses import dataclass

from barnraise.config.privacy_sections import EXAMPLE, NOISE, DifferentialPrivacySection
from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError
from barnraise.privacy import accounting

SECTION = ("privacy", "differential_privacy")


@dataclass(frozen=True)
class PrivacyTerms:
    """The budget of one unit, a row or a site: epsilon at delta is spent in `steps` steps of a `rate` with this noise.

    A task is `task_steps` steps. Where members of masked sums share the noise, `honest` of them have the whole.
    """

    unit: str
    noise: float
    rate: float
    epsilon: float
    delta: float
    steps: int
    task_steps: int
    honest: int = 0

    def spent(self, steps: int) -> float:
        """Return the epsilon of a number of steps."""
        return accounting.epsilon(self.noise, self.rate, steps, self.delta, self.honest > 0)

    def __str__(self) -> str:
        uses = self.steps // self.task_steps
        how = f", each with a share of {self.rate:.3g} of the task's rows" if self.rate < 1.0 else ""
        how = f", which {self.honest} honest members of each sum share" if self.honest else how
        return (
            f"epsilon {self.spent(self.steps):.3g} of {self.epsilon:g} at delta {self.delta:g} for one {self.unit}, "
            f"once it was in {uses} tasks ({self.steps:,} steps of noise {self.noise:g} times the clip{how})"
        )


def budget_of(run_file: RunFile) -> PrivacyTerms | None:
    """Return the run's budget; None without one, or while its noise is open."""
    section = run_file.privacy.differential_privacy
    if section is None or section.profile == NOISE or section.noise == "auto":
        return None
    assert section.epsilon is not None
    assert section.delta is not None
    unit, rate, each = _steps(section, run_file)
    return PrivacyTerms(
        unit=unit,
        noise=section.noise,
        rate=rate,
        epsilon=section.epsilon,
        delta=section.delta,
        steps=section.most_uses * each,
        task_steps=each,
        honest=section.honest or 0,
    )


def _steps(section: DifferentialPrivacySection, run_file: RunFile) -> tuple[str, float, int]:
    """Return the unit, the rate of a step, and the steps of a task."""
    if section.profile == EXAMPLE:
        return "row", 1.0 / run_file.training.local_steps, run_file.training.local_steps
    return "site", 1.0, 1


def settled_noise(run_file: RunFile) -> tuple[RunFile, list[Problem]]:
    """Return `run_file` with a number in place of automatic noise, and why its budget cannot be met."""
    section = run_file.privacy.differential_privacy
    if section is None or section.profile == NOISE or section.epsilon is None or section.delta is None:
        return run_file, []  # the compatibility table tells of the missing ones
    _, rate, each = _steps(section, run_file)
    uses, steps, shared = section.most_uses, section.most_uses * each, section.honest is not None and rate == 1.0
    try:
        if section.noise == "auto":
            noise = accounting.smallest_noise(section.epsilon, rate, steps, section.delta, shared)
            changed = section.model_copy(update={"noise": noise})
            privacy = run_file.privacy.model_copy(update={"differential_privacy": changed})
            return run_file.model_copy(update={"privacy": privacy}), []
        spent = accounting.epsilon(section.noise, rate, steps, section.delta, shared)
        if spent <= section.epsilon:
            return run_file, []
        least = accounting.smallest_noise(section.epsilon, rate, steps, section.delta, shared)
    except InputError as error:
        return run_file, [Problem(SECTION, str(error))]
    text = (
        f"is {section.noise:g}, which spends epsilon {spent:.3g} in {uses} uses, more than {section.epsilon:g}; the "
        f"smallest that fits is {least:g}: set it, or auto, or lower uses"
    )
    return run_file, [Problem((*SECTION, "noise"), text)]
