"""The faults that a trial can plan: for each kind its operands, its effect, and the commands that can play it.

This is the only list of them. A section of the run file becomes a `Planned`; the operands of a kind are the fields of
its struct, named as the section's keys. The package `faults` plays them: each of its targets has a method, named as the
kind, for each kind that it can play.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from barnraise.config.trial_sections import FaultSection, WorkerSection


@dataclass(frozen=True)
class Fault:
    """Base class of all kinds of faults."""


@dataclass(frozen=True)
class Kill(Fault):
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Join(Fault):
    join: WorkerSection


@dataclass(frozen=True)
class Hang(Fault):
    nodes: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Preempt(Fault):
    nodes: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Partition(Fault):
    seconds: float
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class OneWayLoss(Fault):
    seconds: float
    way: str
    nodes: tuple[str, ...] = ()
    share: float = 1.0


@dataclass(frozen=True)
class Corrupt(Fault):
    seconds: float
    share: float
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Duplicate(Fault):
    seconds: float
    share: float
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reorder(Fault):
    seconds: float
    share: float
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SlowDisk(Fault):
    seconds: float
    by_seconds: float


@dataclass(frozen=True)
class FullDisk(Fault):
    seconds: float


@dataclass(frozen=True)
class ClockJump(Fault):
    by_seconds: float
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class KillController(Fault):
    seconds: float


TRAIN, LAB, SIMULATE = "train", "lab", "simulate"
REAL = (TRAIN, LAB, SIMULATE)
"""Commands that can play faults of processes."""

LINKED = (LAB, SIMULATE)
"""Commands that can play faults of an emulated link."""

MODELLED = (SIMULATE,)
"""Commands that can play faults of a modelled machine."""


@dataclass(frozen=True)
class Kind:
    """One kind of fault: its operands, its effect in a sentence, and the commands that can play it.

    Or play it on nodes where that is less. `ends`: its nodes do not return.
    """

    struct: type[Fault]
    summary: str
    modes: tuple[str, ...]
    ends: bool = False
    on_nodes: tuple[str, ...] = REAL

    @property
    def operands(self) -> dict[str, bool]:
        """Return the keys that it takes, and whether it needs them."""
        return {field.name: field.default is MISSING for field in fields(self.struct)}


KINDS: Mapping[str, Kind] = {
    "kill": Kind(Kill, "the node's process dies without a word (SIGKILL), and stays down", REAL, True),
    "join": Kind(Join, "a new node joins", REAL),
    "hang": Kind(Hang, "the node's process stands still for `seconds` (SIGSTOP, then SIGCONT)", REAL),
    "preempt": Kind(
        Preempt,
        "the node gets notice (SIGTERM): it has `seconds` to submit the steps it has done, then it dies (SIGKILL)",
        REAL,
        True,
    ),
    "partition": Kind(
        Partition, "for `seconds` nothing passes between the node and the controller; connections break", LINKED
    ),
    "one_way_loss": Kind(
        OneWayLoss,
        "for `seconds` the traffic of one `way` is lost, or a `share` of it: in a lab packets, in a simulation "
        "messages, each with its connection",
        LINKED,
    ),
    "corrupt": Kind(
        Corrupt,
        "for `seconds` a `share` of the frames, both ways, cannot be read, and their receiver refuses them; in a lab "
        "a `share` of the TCP packets has two words swapped, which no checksum of theirs tells",
        LINKED,
    ),
    "duplicate": Kind(
        Duplicate, "for `seconds` a `share` of the messages (in a lab: packets), both ways, come twice", LINKED
    ),
    "reorder": Kind(
        Reorder,
        "for `seconds` a `share` of the messages (in a lab: packets), both ways, are overtaken by later ones",
        LINKED,
    ),
    "slow_disk": Kind(
        SlowDisk, "for `seconds` each commit and each checkpoint of the controller takes `by_seconds` longer", REAL
    ),
    "full_disk": Kind(
        FullDisk,
        "for `seconds` the controller's disk has no room: commits and the last checkpoint are tried again until there "
        "is some, and the run is given up, to be resumed, where that takes a minute; other checkpoints fail",
        REAL,
    ),
    "clock_jump": Kind(
        ClockJump,
        "the clock that leases and waits go by (monotonic, of the node's machine, or of the controller's when no "
        "node is given) is `by_seconds` ahead from now on, as after a machine was suspended; that of a worker's "
        "process cannot be moved from outside, so with a node it is for `simulate` alone",
        REAL,
        on_nodes=MODELLED,
    ),
    "kill_controller": Kind(
        KillController,
        "the controller dies (SIGKILL): what is committed is durable, nothing else of that batch is done; after "
        "`seconds` it comes back from its journal, as `resume` does",
        REAL,
    ),
}
"""Every kind by its name."""

SHORT: Mapping[str, str] = {"kill": "kill", "join": "join"}
"""Keys that give kind and node at once: `{at: 0.5, kill: slow}` is `{at: 0.5, do: kill, node: slow}`."""

WHEN = ("at", "at_seconds", "at_decisions")
"""The keys of which each fault has exactly one."""

OPERANDS = ("node", "nodes", "seconds", "by_seconds", "share", "way", "join")
"""The keys that are operands. `node` and `nodes` are one of the struct's."""


@dataclass(frozen=True)
class When:
    """The time of a fault: a share of the token budget, seconds since the start, or a number of journaled decisions."""

    share: float | None = None
    seconds: float | None = None
    decisions: int | None = None

    def __str__(self) -> str:
        if self.share is not None:
            return f"{self.share:.0%} of the tokens"
        return f"{self.seconds:g} s" if self.seconds is not None else f"decision {self.decisions}"


@dataclass(frozen=True)
class Planned:
    """A planned fault and its time.

    `name` is its kind's; randomness, where it has some, is drawn from `seed`.
    """

    when: When
    name: str
    fault: Fault
    seed: int

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that it hits; empty where it hits no particular one."""
        return getattr(self.fault, "nodes", ())


def kinds_of(section: FaultSection) -> list[str]:
    """Return the kinds that the section names: one kind, if it is valid."""
    said = [section.do] if section.do is not None else []
    return list(dict.fromkeys([*said, *(kind for key, kind in SHORT.items() if getattr(section, key) is not None)]))


def given(section: FaultSection) -> dict[str, Any]:
    """Return the operands that the section has, by the struct's names."""
    found = {key: getattr(section, key) for key in OPERANDS if getattr(section, key) is not None}
    nodes = (*([section.kill] if section.kill is not None else ()), *found.pop("nodes", ()))
    nodes += (found.pop("node"),) if "node" in found else ()
    return {**found, "nodes": nodes} if nodes else found


def planned(section: FaultSection, seed: int) -> Planned:
    """Return the fault that a valid section describes; `seed` where it has none of its own."""
    (name,) = kinds_of(section)
    when = When(section.at, section.at_seconds, section.at_decisions)
    return Planned(when, name, KINDS[name].struct(**given(section)), seed if section.seed is None else section.seed)
