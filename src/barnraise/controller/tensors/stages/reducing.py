"""The pseudo-gradient of a version: the aggregation rule over its rows and sums, read span by span.

The rule's mixing is settled before anything of the version is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from barnraise.aggregation.base import Array, Combination, Rule
from barnraise.aggregation.context import Context, names_of, of_nodes
from barnraise.aggregation.fallback import without
from barnraise.controller.tensors.stages.base import Input, Making, Stage
from barnraise.core.errors import InputError, OptionError
from barnraise.core.ranges import covers, disjoint, moved
from barnraise.core.threads import Crew
from barnraise.core.types import ParameterRange

FORGOTTEN = 100
"""Versions after which the vectors of a node that is in none of them are dropped: it has left, or they are out of date.
"""

VOTES = 0.5
"""Trust below which a row is left out, where all rows count alike and enough others are there: a rule that chooses
knows no half votes."""

_VECTOR, _VALUES, _SEEN = "rule.vector.", "rule.values", "rule.seen"  # in checkpoints
_NONE = msgspec.msgpack.encode({})


class Reduce(Stage):
    """Aggregates rows, sums of cohorts, or both by the rule.

    A rule that needs rows refuses sums, but for those of random groups. The rule's state, vectors of all parameters and
    values, is here.
    """

    def __init__(self, rule: Rule, crew: Crew) -> None:
        self._rule, self._crew = rule, crew
        self._kept: dict[str, Tensor] = {}
        self._values = self._next_values = _NONE
        self._seen: dict[str, int] = {}  # the newest version with each node, where the rule keeps state by node
        self._next_seen: dict[str, int] = {}
        self._gradient: PseudoGradient | None = None

    def prepare(self, making: Making) -> None:
        nodes = [node for each in making.inputs for node in each.nodes]
        names = names_of(self._rule.keeps, nodes)
        kept = {
            name: self._kept[name] if name in self._kept else torch.zeros(making.size, dtype=torch.float32)
            for name in names
        }
        values = msgspec.msgpack.decode(self._values)
        gradient = self._gradient = PseudoGradient(self._rule, making, kept, values, self._crew)
        by_node = values or of_nodes(self._rule.keeps)
        self._next_seen = self._seen | (dict.fromkeys(nodes, making.version) if by_node else {})
        for node in self._gone(making.version):
            values.pop(node, None)
        self._next_values = msgspec.msgpack.encode(values)
        making.moving = gradient.moved

    def growth(self, making: Making, largest: float, before: Mapping[str, float], after: dict[str, float]) -> float:
        assert self._gradient is not None
        bounds = {name: before.get(_told(name), 0.0) for name in self._gradient.kept}
        found, written = self._gradient.bounds(bounds)
        after["the aggregate"] = found
        after |= {_told(name): before[_told(name)] for name in self._kept}
        after |= {_told(name): max(bound, written) for name, bound in bounds.items()}
        return found

    def begin(self, making: Making) -> None:
        assert self._gradient is not None
        self._kept |= self._gradient.kept
        self._values = self._next_values
        for node in self._gone(making.version):
            del self._next_seen[node]
            for name in names_of(of_nodes(self._rule.keeps), [node]):
                self._kept.pop(name, None)
        self._seen = self._next_seen

    def _gone(self, version: int) -> list[str]:
        return [node for node, newest in self._next_seen.items() if version - newest > FORGOTTEN]

    def step(self, making: Making, span: slice, values: Array) -> Array:
        assert self._gradient is not None
        with np.errstate(over="ignore", invalid="ignore"):  # in updates that a robust rule leaves out
            for here, there in making.parts(span):
                self._gradient.into(here.start, values[there])
        return values

    def end(self, making: Making) -> None:
        self._gradient = None

    def vectors(self) -> dict[str, Tensor]:
        return {_told(name): vector for name, vector in self._kept.items()}

    def state(self) -> dict[str, Tensor]:
        state = {f"{_VECTOR}{name}": vector for name, vector in self._kept.items()}
        if self._values != _NONE:
            state[_VALUES] = _packed(self._values)
        if self._seen:
            state[_SEEN] = _packed(msgspec.msgpack.encode(self._seen))
        return state

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self._kept = {name.removeprefix(_VECTOR): t for name, t in tensors.items() if name.startswith(_VECTOR)}
        self._values = tensors[_VALUES].numpy().tobytes() if _VALUES in tensors else _NONE
        self._seen = msgspec.msgpack.decode(tensors[_SEEN].numpy().tobytes()) if _SEEN in tensors else {}
        self._next_seen = self._seen


@dataclass(frozen=True)
class _Reduced:
    """A range of the parameters, its rows and sums, and their aggregate."""

    parameters: ParameterRange
    rows: Sequence[Input]
    combination: Combination
    scale: float | None


class PseudoGradient:
    """The rule's aggregate of a version's rows, its sums and its `kept` state, for each range.

    Ranges are those into which the ranges of slots and sums cut each other. Each of the version's scales multiplies the
    aggregate of one of them, in order, where there are several. A range whose rows are lost, and gaps between ranges,
    are zero.
    InputError where the rule takes no such rows, or no sums.
    """

    def __init__(self, rule: Rule, making: Making, kept: dict[str, Tensor], values: dict[str, Any], crew: Crew) -> None:
        self.kept = kept
        _require_rows(rule, making)
        rule = without(rule, making.exposed)
        covered = [slot.parameters for slot in making.slots] + [each.parameters for each in making.sums]
        cut, scales = disjoint(covered), making.scales
        self.start, self.stop, self.moved = cut[0].start, cut[-1].stop, moved(covered)
        self._reduced = []
        for index, parameters in enumerate(cut):
            there = _voting(rule, [row for row in making.inputs if covers(row.parameters, parameters)])
            if there:
                context = _context(rule, parameters, there, kept, values, making.version)
                combination = _combined(rule, parameters, there, context, crew)
                scale = float(scales[index]) if scales and len(cut) > 1 else None
                self._reduced.append(_Reduced(parameters, there, combination, scale))

    def bounds(self, kept: Mapping[str, float]) -> tuple[float, float]:
        """Return upper bounds of all elements and partial sums, and of the state that the rule writes.

        Elements of the `kept` state are within their bounds.
        """
        found, written = [0.0], [0.0]
        for each in self._reduced:
            rows = [row.largest for row in each.rows] + [kept[name] for name in each.combination.kept]
            scale = max(1.0, abs(1.0 if each.scale is None else each.scale))
            out, remembered = each.combination.bounds(np.array(rows))
            found.append(out * scale)
            written.append(remembered)
        return float(np.max(found)), float(np.max(written))

    def into(self, start: int, out: Array) -> None:
        """Write the pseudo-gradient of the parameters from `start` on into `out` (float32)."""
        stop, covered = start + out.size, 0
        for each in self._reduced:
            first, last = max(start, each.parameters.start), min(stop, each.parameters.stop)
            if first < last:
                out[covered : first - start] = 0
                target, covered = out[first - start : last - start], last - start
                each.combination.into(first - each.parameters.start, target)
                if each.scale is not None:
                    target *= np.float32(each.scale)
        out[covered:] = 0


def _require_rows(rule: Rule, making: Making) -> None:
    """Raise InputError where the rule needs rows, but there are sums of cohorts that are no groups."""
    whole = [each for each in making.sums if not each.grouped]
    if whole and rule.needs == "rows":
        name, nodes = "+".join(entry.name for entry, _ in rule.parts), sum(len(each.nodes) for each in whole)
        raise InputError(
            f"aggregation rule '{name}' needs each update as a row, but those of {nodes} nodes came as a sum; "
            "set aggregation.rule to mean, which needs a sum alone, or let nodes send their updates one by one"
        )


def _voting(rule: Rule, rows: Sequence[Input]) -> Sequence[Input]:
    """Return the rows for the rule: all of them where it weighs them, or could not do with fewer."""
    trusted = [row for row in rows if row.trust >= VOTES]
    if len(trusted) == len(rows):
        return rows
    try:
        rule.require(len(trusted))
    except OptionError:
        return rows
    return rows if rule.among(len(trusted)).weighted else trusted


def _context(
    rule: Rule,
    parameters: ParameterRange,
    rows: Sequence[Input],
    kept: Mapping[str, Tensor],
    values: dict[str, Any],
    version: int,
) -> Context:
    nodes = ["+".join(row.nodes) for row in rows]
    names = names_of(rule.keeps, nodes)
    there = {name: kept[name].numpy()[parameters.start : parameters.stop] for name in names}
    return Context(nodes, [row.age for row in rows], values, there, version)


def _combined(
    rule: Rule, parameters: ParameterRange, rows: Sequence[Input], context: Context, crew: Crew
) -> Combination:
    def read(row: int, start: int, out: Array) -> None:
        rows[row].read(parameters.start + start, out)

    weights = [row.weight for row in rows]
    return Combination(rule, read, len(rows), parameters.stop - parameters.start, weights, crew=crew, context=context)


def _packed(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _told(name: str) -> str:
    return f"the memory of its aggregation rule ({name})"
