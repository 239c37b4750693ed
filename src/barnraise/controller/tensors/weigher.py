"""The nodes whose updates make a version worse, by the loss on training rows (for `versions.loss_gate`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from barnraise.compression.base import Array
from barnraise.controller.state.actions import Slot
from barnraise.controller.state.effects import Gate
from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.controller.tensors.stages.base import ReadPayload, Row
from barnraise.controller.tensors.stages.reducing import PseudoGradient
from barnraise.core.errors import VersionRefusedError
from barnraise.core.ranges import overlap
from barnraise.core.threads import SPAN, spans
from barnraise.data.batches import Batch, Rows
from barnraise.data.shards import Dataset
from barnraise.models.memory import GATED_ROWS

ENOUGH = 1.0
"""Standard errors by which the loss must be lower without a node."""

HARM, HARM_SHARE = 3.0, 0.05
"""Standard errors, and share of the loss, by which the loss must be higher after a version for it not to move at all.
Honest updates are far from that; with less, a model whose loss has to rise before it falls would never move."""


@dataclass
class _Weighed:
    """The aggregate of some rows, and the losses of the drawn rows after a step along it."""

    rows: Sequence[Row]
    aggregate: PseudoGradient
    losses: Array


class Weigher:
    """Measures with the `evaluator`'s model, whose gradient it also needs."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def excluded(self, server: ParameterServer, action: Gate, read: ReadPayload) -> tuple[tuple[str, ...], float]:
        """Return the nodes to leave out, the most harmful first, and by how many nats a token the loss is lower.

        After a step along the aggregate A of all rows (updates x_i), the gradient g of the loss says which row's share
        in it does the most harm: that with the largest <g, A - x_i>, since the step is along -A. That node is left out
        if the loss is lower by more than ENOUGH standard errors without it, row by row on the same rows. Then comes the
        next node, at the aggregate of the remaining ones. If the loss is then still higher than before the version, by
        HARM, all nodes are left out. None is left out where no version can be made of the slots.
        """
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # in updates that a robust rule leaves out
                return self._excluded(server, action, read)
        except VersionRefusedError:
            return (), 0.0  # the making of the version will report it

    def _excluded(self, server: ParameterServer, action: Gate, read: ReadPayload) -> tuple[tuple[str, ...], float]:
        batches, out = list(self._drawn(self._evaluator.dataset, action.rows, action.seed)), list[str]()
        now = first = self._weighed(server, action, action.slots, read, batches)
        for _ in range(action.most):
            node, harm = self._worst(now)
            if not harm > 0.0:
                break
            slots = [slot for slot in action.slots if slot.node not in (*out, node)]
            without = self._weighed(server, action, slots, read, batches)
            if not lower(now.losses - without.losses):
                break
            out.append(node)
            now = without
        still = self._evaluator.row_losses(self._evaluator.model_of(server.parameters), batches)
        if lower(now.losses - still, HARM) and now.losses.mean() > (1.0 + HARM_SHARE) * still.mean():
            nodes = dict.fromkeys(slot.node for slot in action.slots if slot.contributions)
            return tuple(nodes), float((first.losses - still).mean())
        return tuple(out), float((first.losses - now.losses).mean())

    def _weighed(
        self,
        server: ParameterServer,
        action: Gate,
        slots: Sequence[Slot],
        read: ReadPayload,
        batches: Sequence[Batch],
    ) -> _Weighed:
        """Weigh the slots, and leave the gradient of the mean loss with the model."""
        rows, aggregate = server.candidate(action.version, slots, read)
        module = self._evaluator.model_of(server.parameters)
        self._evaluator.walk(aggregate.into, slice(aggregate.start, aggregate.stop), -action.rate)
        losses = self._evaluator.losses_and_gradient(module, batches)
        return _Weighed(rows, aggregate, losses)

    def _worst(self, found: _Weighed) -> tuple[str, float]:
        """Return the node whose rows do the most harm, to first order, and how much."""
        gradient, harm = self._evaluator.gradient, dict[str, float]()
        for row in found.rows:
            total = 0.0
            for part in overlap(row.parameters, 0, len(gradient)):
                for span in spans(part.stop - part.start, SPAN):
                    begin, size = part.start + span.start, span.stop - span.start
                    own, all_rows = np.empty(size, np.float32), np.empty(size, np.float32)
                    row.read(begin, own)
                    found.aggregate.into(begin, all_rows)
                    total += float(np.dot((all_rows - own).astype(np.float64), gradient[begin : begin + size]))
            harm[row.slot.node] = harm.get(row.slot.node, 0.0) + total
        return max(harm.items(), key=lambda item: item[1])

    def _drawn(self, dataset: Dataset, count: int, seed: int) -> Iterator[Batch]:
        """Yield training rows, each as likely as any other, in batches of rows of one length."""
        rng, sizes = np.random.default_rng(seed), np.array([shard.rows for shard in dataset.meta.shards], np.float64)
        shards = rng.choice(len(sizes), count, p=sizes / sizes.sum())
        found: dict[np.dtype[Any], list[Rows]] = {}
        for shard in shards.tolist():
            place = int(rng.integers(dataset.meta.shards[shard].rows))
            row = dataset.rows(shard, place, place + 1)
            found.setdefault(row.dtype, []).append(row)
        for rows in found.values():
            yield from self._evaluator.batched(np.concatenate(rows), GATED_ROWS)


def lower(gains: Array, times: float = ENOUGH) -> bool:
    """Return whether the loss fell by more than `times` standard errors; `gains` are the falls on each row."""
    mean, error = float(gains.mean()), float(gains.std()) / math.sqrt(len(gains))
    return mean > times * error  # false where numbers are not finite
