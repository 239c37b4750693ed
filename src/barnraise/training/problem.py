"""The interface of a problem: the module, the batches and the loss of a run.

A package of your own may bring a problem. Everything else of a run knows rows, batches and a loss only through it. The
causal language model is the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from barnraise.core.errors import PROBLEM_RAISED, BarnraiseError, DataError, ProblemError
from barnraise.data.batches import Batch, Rows
from barnraise.data.columns import TEXT, Arrays, RowColumn, loaded_type
from barnraise.data.meta import Format

Tensors = dict[str, Tensor]
"""The arrays of a batch as tensors on the module's device; the first axis of each is the rows."""

Weight = Tensor | int


class Problem:
    """The thing that is trained: its module, its batches and its loss.

    A subclass is a dataclass, whose fields (numbers, text, true or false, each with a default) are its options. It has
    `build` and `loss`, and `columns` and `rows` where the rows are its own.
    """

    columns: ClassVar[tuple[RowColumn, ...]] = ()
    """The columns of its own rows; without any it is trained on the text of the data section."""

    other_columns: ClassVar[tuple[tuple[RowColumn, ...], ...]] = ()
    """Other sets of columns that it can be trained on."""

    def build(self) -> nn.Module:
        """Return a new module in float32; its parameters are drawn with torch's random numbers, seeded by the run."""
        raise NotImplementedError(f"{type(self).__name__} has no method build")

    def rows(self, seed: int) -> tuple[Arrays, Arrays]:
        """Return the rows to train on and those held out: for each column an array [n, ...]."""
        raise NotImplementedError(f"{type(self).__name__} has columns, but no method rows")

    def batch(self, rows: Rows, form: Format, chance: np.random.Generator) -> Batch:
        """Return the arrays that `loss` needs of these rows: the columns, integers as int64 and others as float32.

        `chance` is seeded by the task and the number of the batch: a task that is repeated has the same batches.
        """
        return {
            name: rows[name].astype(np.int64 if rows[name].dtype.kind in "iu" else np.float32)
            for name in rows.dtype.names or ()
        }

    def loss(self, module: nn.Module, batch: Tensors) -> tuple[Tensor, Weight]:
        """Return the loss summed over the batch, and its weight: the whole number of items that it is the sum of.

        A step follows the gradient of all sums over all weights, so a batch may be cut along its rows. Random numbers
        of torch are seeded by the task, and for a measurement by a constant.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method loss")

    def row_losses(self, module: nn.Module, batch: Tensors) -> Tensor:
        """Return the mean loss of each row: float32 [rows]."""
        found = []
        for row in range(len(next(iter(batch.values())))):
            total, weight = self.loss(module, {name: values[row : row + 1] for name, values in batch.items()})
            found.append(total / weight if weight else torch.zeros_like(total))
        return torch.stack(found)

    def evaluate(self, module: nn.Module, batches: Iterable[Tensors]) -> Mapping[str, float]:
        """Return figures of the trained module on held-out batches, by their names; none unless overridden."""
        return {}

    def sample(self, module: nn.Module, folder: Path) -> str:
        """Write samples of the trained module to `folder`, and return what they are; none unless overridden."""
        return ""

    def export(self, module: nn.Module, folder: Path) -> None:
        """Write further files of the trained module to `folder`, beside its parameters; none unless overridden."""

    def positions(self, batch: Batch) -> int:
        """Return how many positions a row of the batch has: memory for a row grows with them."""
        return 1

    def trial_batch(self, form: Format, num_rows: int, length: int) -> Batch:
        """Return a batch of rows of `length` positions, on which a machine's speed is measured."""
        rows = np.zeros(num_rows, loaded_type(form.fields, length, form.dtype_name))
        return self.batch(rows, form, np.random.default_rng(0))

    def require(self, form: Format) -> None:
        """Raise DataError unless the problem can be trained on rows of this form."""
        wanted = self.columns or TEXT
        if form.fields not in (wanted, *self.other_columns):
            names = [", ".join(map(_text, columns)) for columns in (form.fields, wanted)]
            raise DataError(f"the rows have the columns {names[0]}, but {type(self).__name__} needs {names[1]}")

    @property
    def form(self) -> Format:
        """Return the form of its own rows."""
        return Format(kind="rows", tokenizer="none", context=1, vocab_size=1, columns=self.columns)

    def activation_bytes(self, module: nn.Module) -> int:
        """Return the bytes that the loss of one of its own rows keeps for the gradient; 0 where rows are text."""
        if not self.columns:
            return 0
        kept = dict[int, int]()

        def keep(tensor: Tensor) -> Tensor:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        own = {parameter.data_ptr() for parameter in module.parameters()}
        arrays = self.trial_batch(self.form, 1, 1)
        with careful(self), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            self.loss(module, {name: torch.from_numpy(array) for name, array in arrays.items()})
        return sum(size for place, size in kept.items() if place not in own) + 1


def is_own(problem: Problem) -> bool:
    """Return whether the problem's code is of the user, and not of this package."""
    return not type(problem).__module__.startswith("barnraise.")


@contextmanager
def careful(problem: Problem) -> Iterator[None]:
    """Raise ProblemError where the code of a problem that is not of this package raises."""
    if not is_own(problem):
        yield
        return
    try:
        yield
    except (BarnraiseError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if "memory" in str(error).lower():
            raise
        text = f"{PROBLEM_RAISED}{type(problem).__name__} raised {type(error).__name__}: {error}"
        raise ProblemError(text[:300]) from error


def never_finite(problem: Problem) -> str:
    """Return the reason for which a task of the user's own problem comes back without a step."""
    name = type(problem).__name__
    return f"{PROBLEM_RAISED}{name} has a loss or a gradient that is not finite in all steps of a task"


def cautious(problem: Problem, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches that a problem makes, as `careful` runs its code."""
    while True:
        with careful(problem):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _text(column: RowColumn) -> str:
    shape: Any = list(column.shape)
    return f"{column.name} ({column.dtype}{f' {shape}' if shape else ''})"
