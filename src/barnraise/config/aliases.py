"""Other spellings of the run file's keys, from the original overview of the system.

A spelling is turned into its key before the file is judged. Giving both, or two spellings of one key, is refused: only
one of them could count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from barnraise.config.problems import Path, Problem, key_of

EACH = "*"
"""Stands for any index of a list."""


@dataclass(frozen=True)
class Alias:
    """`spelling` means `key`; with `rule`, only while the aggregation rule is that one."""

    spelling: Path
    key: Path
    rule: str = ""

    @property
    def note(self) -> str:
        """What the documentation adds to the spelling."""
        return f"with `aggregation_rule: {self.rule}`" if self.rule else ""


def _worker_aliases(where: Path) -> list[Alias]:
    spellings = {
        "memory": "memory_bytes",
        "flops": "flops_per_second",
        "network_bandwidth": "bandwidth_bytes_per_second",
        "bandwidth": "bandwidth_bytes_per_second",
        "network_latency": "latency_seconds",
    }
    return [Alias((*where, spelling), (*where, key)) for spelling, key in spellings.items()]


ALIASES = (
    Alias(("training", "gradient_accumulation_size"), ("controller", "buffer_size")),
    Alias(("controller", "gradient_accumulation_size"), ("controller", "buffer_size")),
    Alias(("training", "gradient_clip_norm"), ("training", "gradient_clip")),
    Alias(("controller", "gradient_clip_norm"), ("training", "gradient_clip")),
    Alias(("training", "sync_window"), ("controller", "sync_window")),
    Alias(("training", "krum_f"), ("training", "aggregation_f"), rule="krum"),
    Alias(("training", "bulyan_f"), ("training", "aggregation_f"), rule="bulyan"),
    *_worker_aliases(("workers", EACH)),
    *_worker_aliases(("faults", EACH, "join")),
)


@dataclass(frozen=True)
class Canonical:
    """A run file's values under their keys; `spelled` says where each renamed one stands in the file."""

    content: dict[str, Any]
    spelled: dict[Path, Path]
    problems: list[Problem]


def canonical(content: dict[str, Any]) -> Canonical:
    """`content` (left as it is) with every alias replaced by its key."""
    result = Canonical(_copy(content), {}, [])
    rule = _section(content, ("training",)).get("aggregation_rule", "auto")
    for alias in ALIASES:
        for spelling, key in _places(alias, content):
            _rename(result, spelling, key, alias.rule, rule)
    return result


def _rename(result: Canonical, spelling: Path, key: Path, wanted_rule: str, rule: object) -> None:
    value = _section(result.content, spelling[:-1]).pop(str(spelling[-1]))
    rules = rule if isinstance(rule, list) else [rule]
    if wanted_rule and not any(isinstance(name, str) and wanted_rule in name for name in rules):
        message = f"counts only with aggregation_rule: {wanted_rule}, but that is {rule}; write aggregation_f instead"
        result.problems.append(Problem(spelling, message))
        return
    section, name = key[:-1], str(key[-1])
    target = result.content.setdefault(str(key[0]), {}) if len(section) == 1 else _section(result.content, section)
    if not isinstance(target, dict):
        return  # the section itself is wrong, and will be reported
    if name in target:
        other = key_of(result.spelled.get(key, key))
        result.problems.append(
            Problem(spelling, f"is another spelling of {key_of(key)}: {other} is given too; keep one")
        )
        return
    target[name] = value
    result.spelled[key] = spelling


def _places(alias: Alias, content: dict[str, Any]) -> Iterator[tuple[Path, Path]]:
    """Where `alias` is used: its spelling and key with the indices filled in."""
    paths: list[Path] = [()]
    for key in alias.spelling:
        found: list[Path] = []
        for path in paths:
            value = _at(content, path)
            if key == EACH and isinstance(value, list):
                found += [(*path, index) for index in range(len(value))]
            elif isinstance(value, dict) and key in value:
                found.append((*path, key))
        paths = found
    for path in paths:
        indices = iter(key for key in path if isinstance(key, int))
        yield path, tuple(next(indices) if key == EACH else key for key in alias.key)


def _at(content: Any, path: Path) -> Any:
    for key in path:
        content = content[key]
    return content


def _section(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """The section at `path`, or an empty one when there is none."""
    value: Any = content
    for key in path:
        if isinstance(value, dict) and key not in value:
            return {}
        value = _at(value, (key,)) if isinstance(value, dict | list) else {}
    return value if isinstance(value, dict) else {}


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value
