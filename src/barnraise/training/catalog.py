"""The outer optimizers by name, with the modes they suit; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from barnraise.core.registry import Catalog, Entry, Option

SYNCHRONOUS, ASYNCHRONOUS = "synchronous", "asynchronous"


@dataclass(frozen=True)
class Traits:
    """What an outer optimizer declares: the `modes` it suits, and the `reason` why no others."""

    modes: frozenset[str] = frozenset({SYNCHRONOUS, ASYNCHRONOUS})
    reason: str = ""


def _rate(default: float) -> Option:
    return Option("learning_rate", float, default, "Share of the pseudo-gradient applied.", minimum=0, maximum=1e3)


def _decay(name: str, default: float, doc: str) -> Option:
    return Option(name, float, default, doc, minimum=0, maximum=1)


CATALOG = Catalog(
    "outer optimizer",
    "barnraise.training",
    [
        Entry(
            "sgd",
            "barnraise.training.sgd:SGD",
            "subtracts the pseudo-gradient",
            options=(_rate(1.0),),
            declares=Traits(),
        ),
        Entry(
            "nesterov",
            "barnraise.training.nesterov:Nesterov",
            "Nesterov momentum, as in DiLoCo",
            options=(_rate(0.7), _decay("momentum", 0.9, "Share of the momentum kept a step.")),
            declares=Traits(
                frozenset({SYNCHRONOUS}),
                "momentum on stale, sparse pushes diverges; use sgd or delayed_nesterov in asynchronous mode",
            ),
        ),
        Entry(
            "delayed_nesterov",
            "barnraise.training.delayed_nesterov:DelayedNesterov",
            "Nesterov momentum that steps once in several versions",
            options=(
                _rate(0.7),
                _decay("momentum", 0.9, "Share of the momentum kept a momentum step."),
                Option("delay", int, 4, "Versions a momentum step (N).", minimum=1, maximum=1_000_000),
            ),
            declares=Traits(
                frozenset({ASYNCHRONOUS}),
                "synchronous pseudo-gradients are fresh and need no delay; use nesterov",
            ),
        ),
        Entry(
            "adam",
            "barnraise.training.adam:Adam",
            "Adam on pseudo-gradients, as in FedAdam",
            options=(
                _rate(0.001),
                _decay("beta1", 0.9, "Decay of the first moment."),
                _decay("beta2", 0.99, "Decay of the second moment."),
                Option("epsilon", float, 1e-8, "Added to the root of the second moment.", minimum=1e-30, maximum=1),
            ),
            declares=Traits(),
        ),
    ],
)
