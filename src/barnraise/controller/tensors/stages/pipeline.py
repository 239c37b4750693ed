"""The stages of a contribution at its arrival, and of a version: two lists.

    contribution   decoded -> measured                       then `controller.work.admission` says whether it may
    version        open -> weigh -> preserve -> reduce -> outer -> residual -> requantise -> publish

`open` makes a row of each slot, and `weigh` gives it its weight. Updates that the controller may see only in their sum
make no rows: they come to `reduce` as a `base.Sum`. `reduce` takes rows, sums or both, as the rule declares
(`aggregation.catalog.Traits.needs`). Where the downlink codec leaves nothing out, there is no `residual`; where it must
see the whole delta before it writes, `collect` and `deliver` stand in place of `requantise`.

A stage in between is a class of its own, in a file of its own, and a line here.

A version is made in place, in one pass over chunks: each chunk goes through all stages before the next begins, on one
of several threads, so that it stays in the cache and no stage needs a vector of its own. Each operation is elementwise
and rounds once; the bits depend neither on chunks nor on threads. A stage that `seals` ends a pass. In-place changes
cannot be taken back, so all stages first prepare, and bound how large any number could become.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from torch import Tensor

from barnraise.aggregation.base import Rule
from barnraise.compression.base import Codec
from barnraise.controller.tensors.stages.arriving import Decoded, Headed, Look, Measured
from barnraise.controller.tensors.stages.base import Making, Stage
from barnraise.controller.tensors.stages.opening import Open, Weigh
from barnraise.controller.tensors.stages.preserving import Preserve
from barnraise.controller.tensors.stages.publishing import Publish
from barnraise.controller.tensors.stages.reducing import Reduce
from barnraise.controller.tensors.stages.requantising import requantising
from barnraise.controller.tensors.stages.stepping import Outer
from barnraise.core.errors import InputError, VersionRefusedError
from barnraise.core.ranges import size
from barnraise.core.threads import Crew, spans
from barnraise.core.types import Inspection
from barnraise.models.vectors import largest
from barnraise.training.base import OuterOptimizer

_LIMIT = 0.99 * float(np.finfo(np.float32).max)  # a bound is a sum of a few roundings


def of_payload(codecs: Sequence[Codec], hidden: Look | None = None) -> Mapping[Inspection, list[Look]]:
    """Return the stages of a payload's inspection, by its depth; `hidden` looks at masked or encrypted updates."""
    return {
        "none": [],
        "header": [hidden or Headed(codecs)],
        "full": [hidden] if hidden else [Decoded(codecs), Measured()],
    }


def of_version(
    preserve: Preserve,
    publish: Publish,
    *,
    codecs: Sequence[Codec],
    alike: bool,
    rule: Rule,
    outer: OuterOptimizer,
    downlink: Codec,
    crew: Crew,
    moments_start: int | None = None,
) -> list[Stage]:
    """Return the stages from contributions to a version."""
    return [
        Open(codecs, crew),
        Weigh(alike),
        preserve,
        Reduce(rule, crew),
        Outer(outer, moments_start),
        *requantising(downlink),
        publish,
    ]


class Pipeline:
    """Takes versions through `stages`, in spans of `chunk` elements that the `crew` shares."""

    def __init__(self, stages: Sequence[Stage], crew: Crew, chunk: int) -> None:
        self._stages, self._crew, self._chunk = stages, crew, chunk
        self._bounds: Mapping[str, float] = {}  # bounds of the elements that the stages keep

    def take(self, making: Making) -> None:
        """Make the version through all stages.

        VersionRefusedError when that cannot be; nothing is changed then.
        """
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                for stage in self._stages:
                    stage.prepare(making)
                self._bounds = self._bounded(making)
        except InputError as error:  # from the aggregation rule, or the downlink codec
            raise VersionRefusedError(making.version, str(error)) from error
        for stage in self._stages:
            stage.begin(making)
        taken = list(spans(size(making.moving), self._chunk))
        for together in _passes(self._stages):
            self._crew.each(_through(together, making), taken)
            together[-1].seal(making)
        for stage in self._stages:
            stage.end(making)

    def forget(self) -> None:
        """Forget the bounds, as the stages have other state from now on."""
        self._bounds = {}

    def _bounded(self, making: Making) -> dict[str, float]:
        """Return bounds on the stages' state after the version.

        They grow from version to version, whatever the numbers do; the numbers are checked only before it refuses.
        Raises VersionRefusedError when they could leave float32's range.
        """
        vectors: dict[str, Tensor] = {}
        for stage in self._stages:
            vectors |= stage.vectors()
        before = self._bounds
        if not before.keys() >= vectors.keys() or _unbounded(self._growth(making, before)):
            before = {name: largest(vector, self._crew) for name, vector in vectors.items()}
        after = self._growth(making, before)
        if name := _unbounded(after):
            raise VersionRefusedError(making.version, f"{name} would not be finite")
        return after

    def _growth(self, making: Making, before: Mapping[str, float]) -> dict[str, float]:
        after: dict[str, float] = {}
        found = 0.0
        for stage in self._stages:
            found = stage.growth(making, found, before, after)
        return after


def _passes(stages: Sequence[Stage]) -> list[list[Stage]]:
    """Return the stages that chunks pass through without waiting for each other."""
    passes: list[list[Stage]] = [[]]
    for place, stage in enumerate(stages, 1):
        passes[-1].append(stage)
        if stage.seals and place < len(stages):
            passes.append([])
    return passes


def _through(stages: Sequence[Stage], making: Making) -> Callable[[slice], None]:
    def take(span: slice) -> None:
        values = np.empty(span.stop - span.start, np.float32)
        for stage in stages:
            values = stage.step(making, span, values)

    return take


def _unbounded(bounds: Mapping[str, float]) -> str:
    """Return the name of a bound beyond float32."""
    return next((name for name, bound in bounds.items() if not bound < _LIMIT), "")
