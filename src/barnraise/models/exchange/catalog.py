"""The kinds of exchange by name; imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from barnraise.core.registry import Catalog, Entry
from barnraise.models.config import lookup


@dataclass(frozen=True)
class Traits:
    """The traits of a kind of exchange.

    `leaves`: from a model's config and the kind's options, the names and shapes of the trained parameters, in the order
    in which they fill the vector.
    """

    leaves: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[tuple[str, tuple[int, ...]]]]


def _every_parameter(config: Mapping[str, Any], options: Mapping[str, Any]) -> Iterable[tuple[str, tuple[int, ...]]]:
    return lookup(config["model_type"]).shapes(config)


CATALOG = Catalog(
    "kind of exchange",
    "barnraise.exchange",
    [
        Entry(
            "full",
            "barnraise.models.exchange.module:ModuleExchange",
            "every parameter of the model",
            declares=Traits(_every_parameter),
        ),
    ],
)
