"""The keys of a run file that may change in a run: those with effect on the future only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from barnraise.config.aliases import canonical
from barnraise.config.schema import RunFile
from barnraise.core.errors import RunFileError

FREE_SECTIONS = ("workers", "network", "dashboard", "alerts", "tracing", "faults")
"""Sections that may change as a whole; the ledger does not keep them."""

FREE_KEYS: Mapping[str, tuple[str, ...]] = {
    "run": ("report_to",),
    "controller": (
        "host",
        "port",
        "http_port",
        "use_zmq",
        "sync_window",
        "sync_longest_wait",
        "heartbeat",
        "lease",
        "longest_lease",
        "durability",
        "standby_lease",
        "standby_patience",
        "checkpoint_seconds",
        "keep_checkpoints",
        "keep_payloads",
        "scheduler",
        "scheduler_options",
        "threads",
    ),
    "training": (
        "tokens",
        "learning_rate",
        "schedule",
        "warmup_tokens",
        "final_rate",
        "pace",
        "max_local_steps",
    ),
    "aggregation": ("buffer_size",),
    "staleness": (
        "max",
        "adaptive",
        "min",
        "max_multiplier",
        "weighting",
    ),
    "trust": (
        "audits",
        "scores",
        "loss_gate",
        "max_update_norm",
        "per_network",
    ),
    "evaluation": (
        "times",
        "by",
        "metrics",
        "metric_seconds",
        "samples",
        "sample_tokens",
    ),
}
"""Keys that may change, by section. Workers, data, model and recomputed versions depend on all others."""


class KeyChange(NamedTuple):
    """A key whose value has changed."""

    section: str
    key: str
    before: Any
    after: Any

    @property
    def allowed(self) -> bool:
        return self.key in FREE_KEYS.get(self.section, ())

    def __str__(self) -> str:
        return f"{self.section}.{self.key} was {self.before!r} and is {self.after!r}"


def kept(run_file: RunFile) -> dict[str, Any]:
    """Return the part of a run file that the ledger keeps: plain JSON, by section and key."""
    return run_file.model_dump(mode="json", exclude=set(FREE_SECTIONS))


def changes(before: Mapping[str, Any], run_file: RunFile) -> list[KeyChange]:
    """Return where `run_file` differs from the kept part of an earlier one.

    A key that was not kept is one that barnraise did not have then: it had its default. A value that an older barnraise
    kept under a key's old name counts as its value. Raises RunFileError, naming the keys, when one of them must not
    change.
    """
    found = []
    told = canonical(before).content
    for section, keys in kept(run_file).items():
        fields = type(getattr(run_file, section)).model_fields
        for key, after in keys.items():
            old = told.get(section, {}).get(key, fields[key].get_default(call_default_factory=True))
            if old != after:
                found.append(KeyChange(section, key, old, after))
    refused = [str(change) for change in found if not change.allowed]
    if refused:
        raise RunFileError(
            f"the run file has changed since the run began: {'; '.join(refused)}. These cannot change in a run: put "
            "them back, or start a new run with the file (docs/reference/run-file.md lists what may change)"
        )
    return found
