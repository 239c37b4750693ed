"""Alternatives that the compatibility table suggests: policies by their traits, so that new ones appear too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnraise.aggregation.catalog import CATALOG as RULES
from barnraise.compression.catalog import CATALOG as CODECS
from barnraise.core.registry import Catalog, Entry
from barnraise.plan.table import either
from barnraise.training.catalog import ASYNCHRONOUS, INNER, SYNCHRONOUS
from barnraise.training.catalog import CATALOG as OUTER


def rules_with(option: str) -> list[str]:
    """Return the rules that can end a chain and have such an option."""
    return [entry.name for entry in _ends() if option in entry.known_options]


def mixing() -> list[str]:
    """Return the rules that mix updates in front of another."""
    return _named(RULES, lambda traits: traits.mixes)


def choosing() -> list[str]:
    """Return the robust rules that choose among whole updates and take the mean of several, or one."""
    return [entry.name for entry in _ends() if not entry.declares.linear and not entry.declares.coordinatewise]


def chain() -> str:
    """Return an example of a chain."""
    trimming = next(entry.name for entry in _ends() if entry.declares.coordinatewise and entry.options)
    return f"[{mixing()[0]}, {trimming}]"


def supports_by_version() -> list[str]:
    """Return the sparse codecs that leave out the same elements of all updates of one version."""
    return _named(CODECS, lambda traits: traits.support_by_version)


def portable() -> list[str]:
    """Return the codecs that versions can be written in, but for those that keep every bit."""
    return _named(CODECS, lambda traits: traits.portable and not traits.lossless)


def plain_outers() -> list[str]:
    """Return the outer optimizers that keep nothing from version to version."""
    return _named(OUTER, lambda traits: not traits.moments)


def countless_outers() -> list[str]:
    """Return the outer optimizers whose steps do not depend on their number."""
    return _named(OUTER, lambda traits: not traits.counts_versions)


def outer_by_mode() -> str:
    """Describe the outer optimizers: for both modes, and for one."""
    both, synchronous, asynchronous = (
        _named(OUTER, lambda traits, modes=modes: traits.modes == modes)
        for modes in (frozenset({SYNCHRONOUS, ASYNCHRONOUS}), frozenset({SYNCHRONOUS}), frozenset({ASYNCHRONOUS}))
    )
    return (
        f"{either(both)}, or {either(synchronous)} in {SYNCHRONOUS} and {either(asynchronous)} in {ASYNCHRONOUS} mode"
    )


def outer_reasons() -> str:
    """Describe why some suit one mode alone."""
    found = [entry for entry in OUTER.entries.values() if entry.declares.reason]
    return "; ".join(f"{entry.name}: {entry.declares.reason}" for entry in found)


def offloadable_inners() -> str:
    """Describe the inner optimizers that step in main memory beside a device."""
    return either(_named(INNER, lambda traits: not traits.on_device))


def on_device_reasons() -> str:
    """Describe why the others need their device."""
    found = [entry for entry in INNER.entries.values() if entry.declares.on_device]
    return "; ".join(f"{entry.name}: {entry.declares.on_device}" for entry in found)


def _ends() -> list[Entry]:
    return [entry for entry in RULES.entries.values() if not entry.declares.prepares]


def _named(catalog: Catalog, wanted: Callable[..., Any]) -> list[str]:
    return [entry.name for entry in catalog.entries.values() if wanted(entry.declares)]
