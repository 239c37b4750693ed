"""Local training: H steps of the inner optimizer on one worker, starting from published parameters.

All parameters live in one flat float32 vector, so that the inner optimizer, the gradient norm and the delta are each
one pass. The optimizer's moments stay with the worker from task to task (DiLoCo, Douillard et al. 2023, section 2).
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from barnraise.core.errors import ProblemError
from barnraise.data.batches import Batch, Rows
from barnraise.models.chance import seeded
from barnraise.models.flat import FlatParameters
from barnraise.training import inner
from barnraise.training.catalog import ALL, FULL_PRECISION
from barnraise.training.causal_lm import CausalLM
from barnraise.training.device import compile_layers, has_room, usable_precision, use_fast_products, why_not_compiled
from barnraise.training.inner.base import InnerOptimizer
from barnraise.training.offload import MainMemory
from barnraise.training.problem import Problem, Tensors, careful, is_own, never_finite
from barnraise.training.transfers import DONE, Transfer, copy_out, so_far

CPU = torch.device("cpu")

LONGEST_RAMP = 50
"""Steps over which a new worker's rate rises, at most: longer ramps cost more than they save."""


class LocalTrainer:
    """Takes inner steps on `module`, down the loss of `problem`; not thread-safe, one per worker.

    With `tokens_at_once` a batch with more positions passes through the model in micro-batches (a row at least), whose
    gradients add up to the batch's: less memory, and the same step but for rounding (and dropout's randomness). An
    accelerator that runs out of memory halves it permanently.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        optimizer: str,
        options: Mapping[str, float],
        decays: str = ALL,
        gradient_clip: float | None,
        proximal: float = 0.0,
        precision: str = FULL_PRECISION,
        device: str = "cpu",
        tokens_at_once: int | None = None,
        problem: Problem | None = None,
        compiled: bool = False,
        offload: bool = False,
    ) -> None:
        self.problem = problem or CausalLM()
        self.device, self.module = torch.device(device), module.to(device).train()
        self.flat = FlatParameters(self.module)
        self._inner = optimizer, dict(options), decays
        self.offloaded: MainMemory | None = None
        self.optimizer = self._new_optimizer()
        if offload and self.device.type != "cpu":  # a CPU's moments are in main memory already
            self.offload()
        self.gradient_clip, self.proximal = gradient_clip, proximal
        self.precision = usable_precision(precision, self.device)
        use_fast_products(self.device)
        self.tokens_at_once = tokens_at_once
        self.exchanges_on_device = not offload and has_room(self.device, len(self.flat.vector))
        self.reads_late = self.device.type != "cpu"  # to wait for a device after each step is to let it idle
        self.remarks = list[str]()  # about this machine, for its owner
        self.compiled = self._compile() if compiled else []  # the layers that are, until that fails
        self.skipped = 0  # steps so far that were skipped, as not finite or since the code of the problem raised
        self.raised = ""  # the last failure of the problem's code in this task
        self._anchor: Tensor | None = None
        self._reading = DONE  # the last copy of the parameters, before which they must not change
        self._ramp, self._climbed = 1, 0  # steps over which the rate rises, and how many of them were taken

    def anew(self) -> LocalTrainer:
        """Return a trainer of the same module without state of earlier steps: use one of them at a time."""
        other = copy.copy(self)
        other.optimizer = self._new_optimizer()
        other.skipped, other._anchor, other._ramp, other._climbed = 0, None, 1, 0
        return other

    def offload(self) -> None:
        """Let the optimizer step in main memory from here on, without state of earlier steps."""
        self.offloaded = MainMemory(self.flat)
        self.optimizer = self._new_optimizer()

    def load(self, parameters: Tensor) -> None:
        """Load `parameters` (float32 [d]) as the start."""
        self.hold()
        self.flat.vector.copy_(parameters)
        if self.offloaded:
            self.offloaded.load(parameters)
        self.flat.loads += 1
        self.anchor()

    def anchor(self) -> None:
        """Let a task start at the present parameters, for FedProx."""
        if self.proximal:
            self._anchor = self.flat.vector.clone()

    def copy_out(self, into: Tensor, pool: Executor | None = None) -> Transfer:
        """Copy the parameters `into` main memory, while the next gradient is computed: by the device, or by `pool`."""
        self.hold()
        self._reading = copy_out((self.offloaded or self.flat).vector, into, pool)
        return self._reading

    def hold(self) -> None:
        """Wait before the parameters change until no copy of them is under way."""
        self._reading.hold()
        self._reading = DONE

    def shift(self, offset: Tensor) -> Transfer:
        """Move the parameters by `offset` (float32 [d]) between two steps, and the task's start for FedProx too.

        `offset` is needed until the returned transfer is done.
        """
        self.hold()
        if self.offloaded:
            self.offloaded.shift(offset)
        offset = offset.to(self.device, non_blocking=True)
        self.flat.vector.add_(offset)
        if self._anchor is not None:
            self._anchor.add_(offset)
        return so_far(self.device)

    def follow(self, movement: Tensor, steps: int, rate: float, share: float) -> None:
        """Give `share` of the momentum to the `movement` (float32 [d]) of `steps` steps of all workers, at `rate`.

        See `InnerOptimizer.follow`. Nothing happens before the first step.
        """
        if rate > 0.0:
            self.optimizer.follow(movement.to(self.optimizer.vector.device) / (-steps * rate), share)

    def expect(self, direction: Tensor | None, second: Tensor | None, steps: float) -> None:
        """Begin as if `steps` steps into `direction` had led to these second moments, float32 [d].

        See `InnerOptimizer.expect`.
        """
        device = self.optimizer.vector.device
        there = None if direction is None else direction.to(device)
        self.optimizer.expect(there, None if second is None else second.to(device), steps)

    def second_moments(self) -> Tensor | None:
        """Return the expected second moments, float32 [d]; None before a step, or if the optimizer keeps none."""
        return self.optimizer.second_moments()

    def step(self, batch: Batch, learning_rate: float) -> float | None:
        """Take one step of the inner optimizer, and return the batch's mean loss before it.

        None when loss or gradient are not finite: then no step is taken, since it would destroy the moments. Neither
        where the code of the problem raises: `raised` then says what.
        """
        try:
            loss, norm = self._gradient(batch)
        except ProblemError as error:
            self.skipped, self.raised = self.skipped + 1, str(error)
            return None
        mean = float(loss)
        if not (math.isfinite(mean) and math.isfinite(float(norm))):
            self.skipped += 1
            return None
        self._move(norm, learning_rate)
        return mean

    def _step_unread(self, batch: Batch, learning_rate: float) -> tuple[Tensor, Tensor]:
        """Take one step without waiting for its result: the loss and 1, or twice 0 where they are not finite.

        A gradient that is not finite counts as 0 then: the step follows momentum and weight decay alone, and moments
        fade by one step.
        """
        loss, norm = self._gradient(batch)
        unsound = ~torch.isfinite(loss + norm)
        self.flat.gradient.masked_fill_(unsound, 0.0)
        self._move(norm.masked_fill(unsound, 0.0), learning_rate)
        return loss.masked_fill(unsound, 0.0), 1.0 - unsound.float()

    def _move(self, norm: Tensor, learning_rate: float) -> None:
        """Follow the gradient, whose norm is `norm`."""
        if self.gradient_clip is not None:
            self.flat.gradient.mul_((self.gradient_clip / (norm + 1e-6)).clamp_(max=1.0))
        self.hold()
        rate = self.ramped(learning_rate)
        if self.offloaded:
            self.offloaded.step(self.optimizer, rate)
        else:
            self.optimizer.step(rate)
        self._climbed += 1

    @property
    def why_skipped(self) -> str:
        """Return why steps were skipped in this task."""
        return self.raised or "their gradients are not finite"

    def rows_at_once(self, length: int) -> int | None:
        """Return how many rows of `length` positions pass through the model at a time; None: all."""
        return max(1, self.tokens_at_once // max(1, length)) if self.tokens_at_once else None

    def _gradient(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the gradient of the batch's mean loss, and return that loss and the gradient's norm."""
        loss = self._accumulated(batch)
        if self._anchor is not None:  # the gradient of mu / 2 |w - start|^2 (Li et al. 2020, "FedProx", equation 2)
            self.flat.gradient.add_(self.flat.vector - self._anchor, alpha=self.proximal)
        return loss, torch.linalg.vector_norm(self.flat.gradient)

    def _accumulated(self, batch: Batch) -> Tensor:
        while True:
            try:
                return self._accumulate(batch)
            except torch.OutOfMemoryError:
                length = self.problem.positions(batch)
                rows = min(self.rows_at_once(length) or num_rows(batch), num_rows(batch))
                if rows < 2:
                    raise
                self.tokens_at_once = rows // 2 * length
            except Exception as error:
                if not self.compiled:
                    raise
                for layer in self.compiled:
                    layer._compiled_call_impl = None
                self.compiled = []
                first = (str(error).strip() or type(error).__name__).splitlines()[0]
                warnings.warn(f"training.compile: the model is not compiled, since that failed: {first}", stacklevel=2)

    def _compile(self) -> list[nn.Module]:
        """Have the model compiled at its first use, if this machine can."""
        if reason := why_not_compiled(self.device):
            self.remarks.append(f"training.compile: the model is not compiled, since {reason}")
            return []
        return compile_layers(self.module)

    def row_overhead(self, batch: Batch) -> float:
        """Return the time of a step's gradient over that of a usual one."""
        return 1.0

    def _accumulate(self, batch: Batch) -> Tensor:
        self.flat.gradient.zero_()
        rows = max(1, num_rows(batch))
        few = min(self.rows_at_once(self.problem.positions(batch)) or rows, rows)
        total, weight = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        for first in range(0, rows, few):
            some = {name: array[first : first + few] for name, array in batch.items()}
            with careful(self.problem):
                with self._autocast():
                    loss, count = self.problem.loss(self.module, tensors(some, self.device))
                torch.autograd.backward(loss / count if few == rows else loss)
            total, weight = total + loss.detach().float(), weight + count
        if few < rows:
            self.flat.gradient.div_(weight)
        return total / weight

    def run(
        self,
        batches: Iterator[Batch],
        learning_rate: float,
        after_step: Callable[[int], bool] = lambda step: True,
    ) -> tuple[int, float]:
        """Step through `batches` until they end or `after_step(batches so far)` is false: (steps taken, mean loss).

        Batches whose step was skipped count towards neither; the loss is NaN when all were. With a problem of the
        user's own they count as steps, unless all were skipped: rows on which its loss fails would fail again. The
        losses of a device are read once, after the last step: the next batch is prepared while it works.
        """
        self.raised = ""
        if self.reads_late:
            return self._run_unread(batches, learning_rate, after_step)
        steps, number, total = 0, 0, 0.0
        for number, batch in enumerate(batches, 1):
            if (loss := self.step(batch, learning_rate)) is not None:
                steps, total = steps + 1, total + loss
            if not after_step(number):
                break
        return self._done(steps, number), total / steps if steps else math.nan

    def _done(self, steps: int, batches: int) -> int:
        """Return the steps that count, of which `steps` were taken; name a loss of the user's own that fails in all."""
        if not is_own(self.problem):
            return steps
        if batches and not steps and not self.raised:
            self.raised = never_finite(self.problem)
        return batches if steps else 0

    def _run_unread(
        self, batches: Iterator[Batch], learning_rate: float, after_step: Callable[[int], bool]
    ) -> tuple[int, float]:
        sums, number = torch.zeros(2, device=self.device), 0
        for number, batch in enumerate(batches, 1):
            try:
                sums += torch.stack(self._step_unread(batch, learning_rate))
            except ProblemError as error:
                self.raised = str(error)
            if not after_step(number):
                break
        total, steps = sums.tolist()
        self.skipped += number - int(steps)
        return self._done(int(steps), number), total / steps if steps else math.nan

    @property
    def fresh(self) -> bool:
        """Return whether the optimizer has no state of earlier steps."""
        return not self.optimizer.moments

    def ramp(self) -> None:
        """Let the rate rise from here on, as for a new worker on a trained model.

        See `InnerOptimizer.ramp_steps`.
        """
        self._ramp, self._climbed = min(LONGEST_RAMP, self.optimizer.ramp_steps), 0

    def ramped(self, learning_rate: float) -> float:
        """Return the rate of the next step."""
        return learning_rate * min(1.0, (self._climbed + 1) / self._ramp)

    def forget(self) -> None:
        """Drop the moments: the next step is taken as a new worker's first."""
        self.optimizer.forget()

    def moments(self) -> dict[str, Tensor]:
        """Return the optimizer's moments by name, on the CPU, shared where possible; empty when fresh."""
        return self.optimizer.state()

    def remember(self, moments: Mapping[str, Tensor]) -> bool:
        """Continue from the `moments` of another process; False, without a change, when they do not fit."""
        return self.optimizer.load(moments)

    def _new_optimizer(self) -> InnerOptimizer:
        name, options, decays = self._inner
        optimizer = inner.create(name, options)
        optimizer.bind(self.offloaded or self.flat, decays)
        return optimizer

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision == FULL_PRECISION:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.precision))


def tensors(batch: Batch, device: torch.device) -> Tensors:
    """Return the arrays of a batch as tensors on the device; a CUDA device copies them after its work so far."""
    here = {name: torch.from_numpy(array) for name, array in batch.items()}
    if device.type == "cuda":
        return {name: tensor.pin_memory().to(device, non_blocking=True) for name, tensor in here.items()}
    return {name: tensor.to(device) for name, tensor in here.items()}


def num_rows(batch: Batch) -> int:
    """Return how many rows a batch has."""
    return len(next(iter(batch.values())))


def batch_loss(problem: Problem, module: nn.Module, batch: Batch, device: torch.device) -> Tensor:
    """Return the mean loss of a batch."""
    total, weight = problem.loss(module, tensors(batch, device))
    return total / weight


@torch.no_grad()
def row_losses(problem: Problem, module: nn.Module, batches: Iterable[Batch]) -> Rows:
    """Return the mean loss of each row of all batches, concatenated: float32 [rows]."""
    found = []
    for batch in batches:
        with careful(problem), seeded():
            found.append(problem.row_losses(module, tensors(batch, CPU)))
    return torch.cat(found).numpy()


def held_out_loss(problem: Problem, module: nn.Module, batches: Iterable[Batch], device: str = "cpu") -> float:
    """Return the mean loss over all of `batches`; of text in nats a token."""
    total, count = 0.0, 0
    for loss, weight in held_out_losses(problem, module, batches, device):
        total, count = total + loss * weight, count + weight
    return total / count if count else math.nan


@torch.no_grad()
def held_out_losses(
    problem: Problem, module: nn.Module, batches: Iterable[Batch], device: str = "cpu"
) -> Iterator[tuple[float, int]]:
    """Yield for each batch its mean loss, and its weight."""
    was_training = module.training
    module.eval()
    try:
        for batch in batches:
            with careful(problem), seeded():
                total, weight = problem.loss(module, tensors(batch, torch.device(device)))
            count = int(weight)
            yield (float(total / weight) if count else 0.0), count
    finally:
        module.train(was_training)
