"""The exchange that a run file asks for: its kind and options, without the frozen parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError
from barnraise.models.exchange.catalog import CATALOG, LORA, PART
from barnraise.models.exchange.record import Exchange
from barnraise.wire.manifest import FULL_MODEL, ExchangeName


def exchange_name(run_file: RunFile) -> ExchangeName:
    """Return the name of what travels in a run.

    >>> from barnraise.config.load import load
    >>> exchange_name(load({"model": {"architecture": "gpt2"}, "data": {"kind": "sat"}})).kind
    'full'
    """
    adapter, part = run_file.training.adapter, run_file.training.train
    if adapter is not None:
        targets = adapter.targets if isinstance(adapter.targets, str) else ",".join(adapter.targets)
        given = adapter.model_dump(exclude={"kind"}) | {
            "alpha": 2.0 * adapter.rank if adapter.alpha is None else adapter.alpha,
            "targets": targets,
            "seed": run_file.run.seed,
        }
        return ExchangeName(LORA, CATALOG.resolve(LORA, given))
    if part is not None:
        layers = ",".join(map(str, part.layers))
        return ExchangeName(PART, CATALOG.resolve(PART, part.model_dump() | {"layers": layers}))
    return FULL_MODEL


def part_problems(run_file: RunFile, model: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what keeps a run from training a part of `model`, or adapters: names, packages."""
    adapter, part = run_file.training.adapter, run_file.training.train
    if adapter is None and part is None:
        return
    path = ("training", "train") if adapter is None else ("training", "adapter")
    name = exchange_name(run_file)
    try:
        Exchange.of(model, name)
    except InputError as error:
        yield Problem(path, str(error))
    if adapter is not None and find_spec("peft") is None:
        yield Problem(path, "needs peft; run `pip install 'barnraise[adapters]'` here and on every worker")
