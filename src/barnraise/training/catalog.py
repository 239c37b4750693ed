"""The outer and inner optimizers by name, with their traits, and the precisions; imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnraise.core.registry import Catalog, Entry, Option
from barnraise.models.exchange.layout import Layout
from barnraise.training import reach
from barnraise.training.matrices import hidden_share, largest_batch

AT_ONCE = 1 << 24
"""Values that take an optimizer's step at a time on accelerators: so many that a kernel takes longer than its launch.

A kernel that reads and writes them moves 128 MB.
"""

SYNCHRONOUS, ASYNCHRONOUS = "synchronous", "asynchronous"


@dataclass(frozen=True)
class Traits:
    """The traits of an outer optimizer: the `modes` it suits, and the `reason` why no others.

    `moments`: vectors that it keeps from version to version; with none, a version moves by its contributions alone.
    `amplifies`: its momentum takes late updates further than intended, as error feedback sends them. `counts_versions`:
    a step depends on their number, so each must move all elements. `divides`: takes a version's share of all work by
    itself.
    """

    modes: frozenset[str] = frozenset({SYNCHRONOUS, ASYNCHRONOUS})
    reason: str = ""
    moments: int = 0
    amplifies: bool = False
    counts_versions: bool = False
    divides: bool = False


@dataclass(frozen=True)
class InnerTraits:
    """The traits of an inner optimizer.

    `moments`: the float32 values that it keeps for each parameter of a layout; `adaptive`: its steps have the length of
    the rate for any gradient; `seconds`: it keeps second moments, which stateless tasks publish. `reach`: from its
    options, the norm that gradients are clipped to, and the number of parameters, the largest L2 norm of one step at a
    learning rate of 1. None: there is no bound. `on_device`: why its steps cannot be taken in main memory beside a
    device; empty when they can. `follows`: whether the momentum of the fleet helps its steps. `scratch`: the bytes that
    a step takes of an accelerator's memory for a while.
    """

    moments: Callable[[Layout], float]
    adaptive: bool = False
    seconds: bool = False
    reach: Callable[[Mapping[str, float], float | None, int], float] | None = None
    on_device: str = ""
    follows: bool = True
    scratch: Callable[[Layout], int] = lambda _: 0


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
                "momentum on stale, sparse pushes diverges",
                moments=1,
                amplifies=True,
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
                "synchronous pseudo-gradients are fresh and need no delay",
                moments=2,
                amplifies=True,
                counts_versions=True,
                divides=True,
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
            declares=Traits(moments=2, counts_versions=True),
        ),
    ],
)

_WEIGHT_DECAY = Option("weight_decay", float, 0.01, "Share of the rate taken off each step.", minimum=0, maximum=10)


def _betas(beta1: float, beta2: float) -> tuple[Option, Option]:
    return _decay("beta1", beta1, "Decay of the first moment."), _decay("beta2", beta2, "Decay of the second moment.")


INNER = Catalog(
    "inner optimizer",
    "barnraise.training.inner",
    [
        Entry(
            "adamw",
            "barnraise.training.inner.adamw:AdamW",
            "AdamW, with decoupled weight decay",
            options=(*_betas(0.9, 0.95), _WEIGHT_DECAY),
            declares=InnerTraits(lambda _: 2.0, adaptive=True, seconds=True, reach=reach.adamw),
        ),
        Entry(
            "adamw_8bit",
            "barnraise.training.inner.adamw_8bit:AdamW8Bit",
            "AdamW with moments of one byte each: a quarter of the memory",
            options=(*_betas(0.9, 0.95), _WEIGHT_DECAY),
            declares=InnerTraits(
                lambda _: 0.5 + 2.0 / 256.0,
                adaptive=True,
                seconds=True,
                reach=reach.adamw,
                scratch=lambda layout: 24 * min(AT_ONCE, layout.size),
            ),
        ),
        Entry(
            "lion",
            "barnraise.training.inner.lion:Lion",
            "Lion: signs of the momentum, half of AdamW's moments; wants a third to a tenth of AdamW's rate",
            options=(
                _decay("beta1", 0.9, "Share of the momentum in a step's sign."),
                _decay("beta2", 0.99, "Decay of the momentum."),
                _WEIGHT_DECAY,
            ),
            declares=InnerTraits(lambda _: 1.0, adaptive=True, reach=reach.adamw),
        ),
        Entry(
            "muon",
            "barnraise.training.inner.muon:Muon",
            "Muon for matrices in numbered layers, at the rate of AdamW, which takes the steps of all others",
            options=(_decay("momentum", 0.95, "Decay of the matrices' momentum."), *_betas(0.9, 0.95), _WEIGHT_DECAY),
            declares=InnerTraits(
                lambda layout: 2.0 - hidden_share(layout),
                adaptive=True,
                seconds=True,
                reach=reach.adamw,
                on_device="a CPU takes seconds for the products of its matrices",
                follows=False,
                scratch=lambda layout: 14 * largest_batch(layout, AT_ONCE),
            ),
        ),
        Entry(
            "sgd",
            "barnraise.training.inner.sgd:SGD",
            "SGD, with momentum if wanted; weight decay is L2",
            options=(_decay("momentum", 0.0, "Share of the momentum kept a step."), _WEIGHT_DECAY),
            declares=InnerTraits(lambda _: 1.0, reach=reach.sgd),
        ),
    ],
)

MATRICES, ALL = DECAYING = "matrices", "all"
"""Parameters that weight decay applies to: those of two axes and more, or all of them."""

FULL_PRECISION = "float32"
AUTOMATIC, NEVER = "auto", "never"
PRECISIONS = (FULL_PRECISION, "bfloat16", AUTOMATIC)
"""Types in which workers may compute; parameters and moments are float32 in all of them."""

COMPILES = (NEVER, AUTOMATIC)
"""Whether workers compile the model."""
