"""The kinds of exchange by name; imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from barnraise.core.registry import Catalog, Entry
from barnraise.models.config import architecture_of
from barnraise.models.exchange import lora, part


@dataclass(frozen=True)
class Traits:
    """The traits of a kind of exchange.

    `leaves`: from a model's config and the kind's options, the names and shapes of the trained parameters, in the order
    in which they fill the vector. `inside`: they are parameters of the model itself, and none beside it.
    """

    leaves: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[tuple[str, tuple[int, ...]]]]
    inside: bool = True


def _every_parameter(config: Mapping[str, Any], options: Mapping[str, Any]) -> Iterable[tuple[str, tuple[int, ...]]]:
    return architecture_of(config).shapes(config)


FULL, LORA, PART = "full", "lora", "part"

MODEL, ADAPTER, GGUF = "model", "adapter", "gguf"
FORMS = (MODEL, ADAPTER, GGUF)
"""The forms of an exported model: whole, with adapters merged; the adapters alone; whole, for llama.cpp and Ollama."""

FORM_ALIASES = {"hf": MODEL, "merged": MODEL, "lora": ADAPTER}
"""Other names of forms, as users of other trainers know them."""

CATALOG = Catalog(
    "kind of exchange",
    "barnraise.exchange",
    [
        Entry(
            FULL,
            "barnraise.models.exchange.module:ModuleExchange",
            "every parameter of the model",
            declares=Traits(_every_parameter),
        ),
        Entry(
            PART,
            "barnraise.models.exchange.part_module:PartExchange",
            "some layers of the model",
            options=part.OPTIONS,
            declares=Traits(part.leaves),
        ),
        Entry(
            LORA,
            "barnraise.models.exchange.lora_module:LoraExchange",
            "low-rank adapters beside linear layers",
            options=lora.OPTIONS,
            declares=Traits(lora.leaves, inside=False),
        ),
    ],
)
