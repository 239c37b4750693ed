"""Other spellings of the run file's keys: their old names, and those of the original overview of the system.

The loader turns a spelling into its key before the file is checked. Giving both, or two spellings of one key, is
refused: only one of them could count. `barnraise.config.upgrade` writes a file with the keys themselves, the JSON
Schema marks other spellings as deprecated, and the reference lists them: all from `ALIASES`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from barnraise.config.problems import Path, Problem, key_of

EACH = "*"
"""Stands for any index of a list."""

MOVED: Mapping[str, str] = {
    "controller.max_staleness_multiplier": "staleness.max_multiplier",
    "controller.max_staleness": "staleness.max",
    "controller.min_staleness": "staleness.min",
    "controller.adaptive_staleness": "staleness.adaptive",
    "controller.staleness_weighting": "staleness.weighting",
    "controller.buffer_size": "aggregation.buffer_size",
    "controller.evaluations": "evaluation.times",
    "controller.evaluation_rows": "evaluation.rows",
    "controller.evaluated_by": "evaluation.by",
    "controller.max_update_norm": "trust.max_update_norm",
    "controller.per_network": "trust.per_network",
    "training.average": "evaluation.average",
    "training.audits": "trust.audits",
    "training.scores": "trust.scores",
    "training.loss_gate": "trust.loss_gate",
    "training.believed_liars": "trust.believed_liars",
    "training.liar_odds": "trust.liar_odds",
    "training.unguaranteed": "trust.unguaranteed",
    "training.aggregation_rule": "aggregation.rule",
    "training.aggregation_f": "aggregation.f",
    "training.aggregation_fallback": "aggregation.fallback",
    "training.aggregation_options": "aggregation.options",
    "training.trim_ratio": "aggregation.trim_ratio",
    "training.normalize_steps": "aggregation.normalize_steps",
    "training.outer_optimizer": "aggregation.outer_optimizer",
    "training.outer_learning_rate": "aggregation.outer_learning_rate",
    "training.outer_momentum": "aggregation.outer_momentum",
    "training.outer_weighting": "aggregation.outer_weighting",
    "training.outer_options": "aggregation.outer_options",
    "training.compression": "exchange.compression",
    "training.compression_ratio": "exchange.compression_ratio",
    "training.compression_options": "exchange.compression_options",
    "training.auto_tune": "exchange.auto_tune",
    "training.error_feedback": "exchange.error_feedback",
    "training.error_feedback_decay": "exchange.error_feedback_decay",
    "training.error_feedback_keep": "exchange.error_feedback_keep",
    "training.downlink_compression": "exchange.downlink_compression",
    "training.downlink_options": "exchange.downlink_options",
    "training.fragments": "exchange.fragments",
    "training.merge_lerp": "exchange.merge_lerp",
    "training.overlap": "exchange.overlap",
}
"""Old name -> key, of keys that were in `controller` or `training` before they had sections of their own. Run files,
the ledgers of older runs, and overrides may have either."""


@dataclass(frozen=True)
class Alias:
    """A spelling of a key: `spelling` means `key`; with `rule`, only while the aggregation rule is that one."""

    spelling: Path
    key: Path
    rule: str = ""

    @property
    def note(self) -> str:
        """Return the documentation's remark on the spelling."""
        return f"with `aggregation.rule: {self.rule}`" if self.rule else ""


def _worker_aliases(where: Path) -> list[Alias]:
    spellings = {
        "memory": "memory_bytes",
        "flops": "flops_per_second",
        "network_bandwidth": "bandwidth_bytes_per_second",
        "bandwidth": "bandwidth_bytes_per_second",
        "network_latency": "latency_seconds",
    }
    return [Alias((*where, spelling), (*where, key)) for spelling, key in spellings.items()]


def _path(dotted: str) -> Path:
    return tuple(dotted.split("."))


ALIASES = (
    *(Alias(_path(old), _path(key)) for old, key in MOVED.items()),
    Alias(("training", "gradient_accumulation_size"), ("aggregation", "buffer_size")),
    Alias(("controller", "gradient_accumulation_size"), ("aggregation", "buffer_size")),
    Alias(("training", "gradient_clip_norm"), ("training", "gradient_clip")),
    Alias(("controller", "gradient_clip_norm"), ("training", "gradient_clip")),
    Alias(("training", "sync_window"), ("controller", "sync_window")),
    Alias(("differential_privacy",), ("privacy", "differential_privacy")),
    Alias(("training", "krum_f"), ("aggregation", "f"), rule="krum"),
    Alias(("training", "bulyan_f"), ("aggregation", "f"), rule="bulyan"),
    *_worker_aliases(("workers", EACH)),
    *_worker_aliases(("faults", EACH, "join")),
)


@dataclass(frozen=True)
class Canonical:
    """A run file's values under their keys; `spelled` gives the place of each renamed one in the file."""

    content: dict[str, Any]
    spelled: dict[Path, Path]
    problems: list[Problem]

    def spelling(self, path: Path) -> Path:
        """Return where `path`, or its section, is in the file under another spelling; empty where it is not."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.spelled:
                return (*self.spelled[path[:length]], *path[length:])
        return ()


def canonical(content: Mapping[str, Any], beside: Mapping[str, Any] = MappingProxyType({})) -> Canonical:
    """Return `content` (unchanged) with every alias replaced by its key.

    `beside` has the keys that count where `content` has none: those of the file, where `content` overrides some of
    them.
    """
    result = Canonical(_copy(content), {}, [])
    for alias in ALIASES:
        for spelling, key in _places(alias, content):
            _rename(result, spelling, key, alias.rule, _rule(result.content) or _rule(beside) or "auto")
    return result


def _rule(content: Mapping[str, Any]) -> object:
    return _section(content, ("aggregation",)).get("rule")


def _rename(result: Canonical, spelling: Path, key: Path, wanted_rule: str, rule: object) -> None:
    value = _section(result.content, spelling[:-1]).pop(str(spelling[-1]))
    rules = rule if isinstance(rule, list) else [rule]
    if wanted_rule and not any(isinstance(name, str) and wanted_rule in name for name in rules):
        message = f"counts only with aggregation.rule: {wanted_rule}, but that is {rule}; write aggregation.f instead"
        result.problems.append(Problem(spelling, message))
        return
    section, name = key[:-1], str(key[-1])
    if len(section) == 1 and result.content.get(str(key[0])) is None:
        result.content[str(key[0])] = {}  # not there, or empty
    target = _at(result.content, section[:1]) if len(section) == 1 else _section(result.content, section)
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


def _places(alias: Alias, content: Mapping[str, Any]) -> Iterator[tuple[Path, Path]]:
    """Yield the places where `alias` is used: its spelling and key with the indices filled in."""
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


def _section(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the section at `path`, or an empty one when there is none."""
    value: Any = content
    for key in path:
        if isinstance(value, dict) and key not in value:
            return {}
        value = _at(value, (key,)) if isinstance(value, dict | list) else {}
    return value if isinstance(value, dict) else {}


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value
