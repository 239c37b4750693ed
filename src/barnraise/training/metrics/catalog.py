"""The metrics by name, with what they need of the data; imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barnraise.core.registry import Catalog, Entry

LOSS, PERPLEXITY = "loss", "perplexity"

ANSWERS, CHOICES, FORMULAS, OWN = "answers", "choices", "formulas", "own"
"""Needs: prompts with answers, answers chosen from several, formulas with traces, a problem of one's own."""


@dataclass(frozen=True)
class Traits:
    """The traits of a metric: what it `needs` of the data; `of_loss` where it follows from the held-out loss."""

    needs: str = ""
    of_loss: bool = False


CATALOG = Catalog(
    "metric",
    "barnraise.metrics",
    [
        Entry(LOSS, "", "the held-out loss, nats a token, which every run measures", declares=Traits(of_loss=True)),
        Entry(PERPLEXITY, "", "e to the power of the held-out loss", declares=Traits(of_loss=True)),
        Entry(
            "choice_accuracy",
            "barnraise.training.metrics.measures:choice_accuracy",
            "share of the questions whose right choice is the likeliest, by its log-likelihood after the prompt "
            "divided by its characters",
            declares=Traits(CHOICES),
        ),
        Entry(
            "exact_match",
            "barnraise.training.metrics.measures:exact_match",
            "share of the prompts that greedy generation completes with the answer's text, white space around it aside",
            declares=Traits(ANSWERS),
        ),
        Entry(
            "formulas",
            "barnraise.training.metrics.measures:formulas",
            "shares of right verdicts and accepted traces on formulas that need search, and on each held-out set",
            declares=Traits(FORMULAS),
        ),
        Entry(
            "problem",
            "barnraise.training.metrics.measures:problem",
            "the figures of the problem's own method `evaluate`",
            declares=Traits(OWN),
        ),
    ],
)


def is_callable(name: str) -> bool:
    """Return whether a metric is named as a Python function, "package.module:function"."""
    return ":" in name


def is_own_code(name: str) -> bool:
    """Return whether a metric runs code of the run's owner: a Python function, or a problem's method."""
    return is_callable(name) or (name in CATALOG.names() and traits_of(name).needs == OWN)


def traits_of(name: str) -> Traits:
    """Return the traits of a metric; UnknownNameError with the nearest name where there is none."""
    if is_callable(name):
        return Traits()
    found: Traits = CATALOG.entry(name).declares
    return found


@dataclass(frozen=True)
class Wanted:
    """The metrics of a run that need a measurement of their own, its samples, and the tokens of each sample.

    `samples` is their number where the run file has no prompts, else that of the prompts. Code of the run's owner may
    take `metric_seconds`.
    """

    metrics: tuple[str, ...] = ()
    samples: int = 0
    sample_tokens: int = 64
    metric_seconds: float = 600.0

    @property
    def any(self) -> bool:
        """Return whether anything is to be measured."""
        return bool(self.metrics) or self.samples > 0


def measured(names: Iterable[str]) -> tuple[str, ...]:
    """Return the metrics that need a measurement of their own, each once."""
    return tuple(name for name in dict.fromkeys(names) if not traits_of(name).of_loss)
