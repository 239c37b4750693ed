"""Local training: H steps of the inner optimizer on one worker, starting from published parameters.

All parameters live in one flat float32 vector, so that the inner optimizer, the gradient norm and the delta are each
one pass. The optimizer's moments stay with the worker from task to task (DiLoCo, Douillard et al. 2023, section 2).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from barnraise.data.batches import Batch, Rows
from barnraise.models.flat import FlatParameters
from barnraise.training.catalog import FULL_PRECISION
from barnraise.training.inner import inner_optimizer
from barnraise.training.transfers import DONE, OnStream, Transfer, copy_out

LONGEST_RAMP = 50
"""Steps over which a new worker's rate rises, at most: longer ramps cost more than they save."""


class LocalTrainer:
    """Takes inner steps on `module`; not thread-safe, one per worker.

    With `tokens_at_once` a batch with more tokens passes through the model in micro-batches (a row at least), whose
    gradients add up to the batch's: less memory, and the same step but for rounding (and dropout's randomness). An
    accelerator that runs out of memory halves it permanently.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        optimizer: str,
        options: Mapping[str, float],
        gradient_clip: float | None,
        proximal: float = 0.0,
        precision: str = FULL_PRECISION,
        device: str = "cpu",
        tokens_at_once: int | None = None,
    ) -> None:
        self.device, self.module = torch.device(device), module.to(device).train()
        self.flat = FlatParameters(self.module)
        self._make_optimizer = partial(inner_optimizer, optimizer, self.flat.as_parameter(), options)
        self.optimizer = self._make_optimizer()
        self.gradient_clip, self.proximal, self.precision = gradient_clip, proximal, precision
        self.tokens_at_once = tokens_at_once
        self.skipped = 0  # steps so far that were skipped as not finite
        self._anchor: Tensor | None = None
        self._reading = DONE  # the last copy of the parameters, before which they must not change
        self._ramp, self._climbed = 1, 0  # steps over which the rate rises, and how many of them were taken

    def anew(self) -> LocalTrainer:
        """Return a trainer of the same module without state of earlier steps: use one of them at a time."""
        other = copy.copy(self)
        other.optimizer = self._make_optimizer()
        other.skipped, other._anchor, other._ramp, other._climbed = 0, None, 1, 0
        return other

    def load(self, parameters: Tensor) -> None:
        """Load `parameters` (float32 [d]) as the start."""
        self.hold()
        self.flat.vector.copy_(parameters)
        self.flat.loads += 1
        self.anchor()

    def anchor(self) -> None:
        """Let a task start at the present parameters, for FedProx."""
        if self.proximal:
            self._anchor = self.flat.vector.clone()

    def copy_out(self, into: Tensor, pool: Executor | None = None) -> Transfer:
        """Copy the parameters `into` main memory, while the next gradient is computed: by the device, or by `pool`."""
        self.hold()
        self._reading = copy_out(self.flat.vector, into, pool)
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
        offset = offset.to(self.device, non_blocking=True)
        self.flat.vector.add_(offset)
        if self._anchor is not None:
            self._anchor.add_(offset)
        return OnStream(torch.cuda.current_stream()) if offset.is_cuda else DONE

    def follow(self, movement: Tensor, steps: int, rate: float, share: float) -> None:
        """Give `share` of the momentum to the `movement` (float32 [d]) of `steps` steps of all workers, at `rate`.

        A worker's own momentum has noise that the mean of all has lost; continued from that mean it restores the noise.
        The mean's movement is in the version, at no bytes: m = -movement / (steps * rate) * sqrt(v) undoes Adam's use
        of m (Karimireddy et al. 2021, "Mime", and Xu et al. 2021, "FedCM", send the moments themselves). Never longer
        than the momentum it replaces, so that a slow node does not run after a fast fleet.
        """
        state = self.optimizer.state.get(self.optimizer.param_groups[0]["params"][0])
        if not state or rate <= 0.0:
            return
        fleet = movement.to(self.device) / (-steps * rate)
        if "exp_avg" in state:
            own, taken, (beta1, beta2) = state["exp_avg"], float(state["step"]), self.optimizer.param_groups[0]["betas"]
            fleet.mul_((state["exp_avg_sq"] / (1.0 - beta2**taken)).sqrt_()).mul_(1.0 - beta1**taken)
        elif state.get("momentum_buffer") is not None:
            own = state["momentum_buffer"]
        else:
            return
        longest, length = torch.linalg.vector_norm(own), torch.linalg.vector_norm(fleet)
        if not math.isfinite(float(length)):
            return
        own.lerp_(fleet.mul_((longest / (length + 1e-30)).clamp_(max=1.0)).view_as(own), share)

    def expect(self, first: Tensor | None, second: Tensor | None, steps: float) -> None:
        """Begin as if `steps` steps had led to these moments, float32 [d].

        The optimizer takes those that it keeps; without a `first` that one is 0.
        """
        group, state = self.optimizer.param_groups[0], dict[str, Tensor]()
        beta1, beta2 = group.get("betas", (0.0, 0.0))
        if second is not None and "betas" in group:
            state = {"step": torch.tensor(steps), "exp_avg_sq": second.to(self.device) * (1.0 - beta2**steps)}
        for name in self._moment_names[:1]:
            known = torch.zeros_like(self.flat.vector) if first is None else first.to(self.device)
            state[name] = known * (1.0 - beta1**steps)
        if state:
            self.optimizer.state[group["params"][0]] = state

    def second_moments(self) -> Tensor | None:
        """Return the expected second moments, float32 [d]; None before a step, or if the optimizer keeps none."""
        state = self.optimizer.state.get(self.optimizer.param_groups[0]["params"][0])
        if not state or "exp_avg_sq" not in state:
            return None
        beta2 = self.optimizer.param_groups[0]["betas"][1]
        found: Tensor = state["exp_avg_sq"] / (1.0 - beta2 ** float(state["step"]))
        return found

    @property
    def noise(self) -> float:
        """Return the length of the first moment of pure-noise gradients, in lengths of one gradient.

        It is the root of (1 - b) / (1 + b), where b is the decay.
        """
        group = self.optimizer.param_groups[0]
        beta1 = float(group["betas"][0] if "betas" in group else group["momentum"])
        return math.sqrt((1.0 - beta1) / (1.0 + beta1))

    @property
    def _moment_names(self) -> tuple[str, ...]:
        group = self.optimizer.param_groups[0]
        return ("exp_avg", "exp_avg_sq") if "betas" in group else ("momentum_buffer",) * bool(group["momentum"])

    def step(self, batch: Batch, learning_rate: float) -> float | None:
        """Take one step of the inner optimizer, and return the batch's mean loss before it, in nats a token.

        None when loss or gradient are not finite: then no step is taken, since it would destroy the moments.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, (self._climbed + 1) / self._ramp)
        mean = self._gradient(batch)
        if self._anchor is not None:  # the gradient of mu / 2 |w - start|^2 (Li et al. 2020, "FedProx", equation 2)
            self.flat.gradient.add_(self.flat.vector - self._anchor, alpha=self.proximal)
        norm = torch.linalg.vector_norm(self.flat.gradient)
        if not (math.isfinite(mean) and math.isfinite(float(norm))):
            self.skipped += 1
            return None
        if self.gradient_clip is not None:
            self.flat.gradient.mul_((self.gradient_clip / (norm + 1e-6)).clamp_(max=1.0))
        self.hold()
        self.optimizer.step()
        self._climbed += 1
        return mean

    def rows_at_once(self, length: int) -> int | None:
        """Return how many rows of `length` tokens pass through the model at a time; None: all."""
        return max(1, self.tokens_at_once // max(1, length)) if self.tokens_at_once else None

    def _gradient(self, batch: Batch) -> float:
        """Compute the gradient of the batch's mean loss, and return that loss."""
        while True:
            try:
                return self._accumulate(batch)
            except torch.OutOfMemoryError:
                rows = min(self.rows_at_once(batch[0].shape[1]) or len(batch[0]), len(batch[0]))
                if rows < 2:
                    raise
                self.tokens_at_once = rows // 2 * batch[0].shape[1]

    def _accumulate(self, batch: Batch) -> float:
        self.flat.gradient.zero_()
        (tokens, labels), mean = batch, 0.0
        rows = self.rows_at_once(tokens.shape[1]) or max(1, len(tokens))
        num_labels = int((labels[:, 1:] != -100).sum()) if rows < len(tokens) else None
        for first in range(0, max(1, len(tokens)), rows):
            some = slice(first, first + rows)
            with self._autocast():
                loss = batch_loss(self.module, (tokens[some], labels[some]), self.device, num_labels)
            torch.autograd.backward(loss)
            mean += float(loss.detach())
        return mean

    def run(
        self,
        batches: Iterator[Batch],
        learning_rate: float,
        after_step: Callable[[int], bool] = lambda step: True,
    ) -> tuple[int, float]:
        """Step through `batches` until they end or `after_step(batches so far)` is false: (steps taken, mean loss).

        Batches whose step was skipped count towards neither; the loss is NaN when all were.
        """
        steps, total = 0, 0.0
        for number, batch in enumerate(batches, 1):
            if (loss := self.step(batch, learning_rate)) is not None:
                steps, total = steps + 1, total + loss
            if not after_step(number):
                break
        return steps, total / steps if steps else math.nan

    @property
    def fresh(self) -> bool:
        """Return whether the optimizer has no state of earlier steps."""
        return not self.optimizer.state

    def ramp(self) -> None:
        """Let the rate rise from here on, as for a new worker on a trained model.

        AdamW's first steps have the length of the rate in every parameter, since they divide by one gradient alone:
        later ones are several times shorter. SGD's first steps are no longer than others.
        """
        beta2 = self.optimizer.param_groups[0].get("betas", (0.0, 0.0))[1]
        self._ramp, self._climbed = min(LONGEST_RAMP, round(1.0 / (1.0 - beta2))), 0

    def forget(self) -> None:
        """Drop the moments: the next step is taken as a new worker's first."""
        self.optimizer.state.clear()

    def moments(self) -> dict[str, Tensor]:
        """Return the optimizer's moments by name, on the CPU, shared where possible; empty when fresh."""
        state: dict[str, Any] = next(iter(self.optimizer.state.values()), {})
        return {name: value.cpu() for name, value in state.items() if isinstance(value, Tensor)}

    def remember(self, moments: Mapping[str, Tensor]) -> bool:
        """Continue from the `moments` of another process; False, without a change, when they do not fit."""
        group = self.optimizer.param_groups[0]
        vectors = self._moment_names
        shapes = dict.fromkeys(vectors, self.flat.vector.shape) | ({"step": torch.Size()} if "betas" in group else {})
        found = {name: value.shape for name, value in moments.items()}
        sound = found == shapes and all(bool(value.isfinite().all()) for value in moments.values())
        if not sound or any(value.dtype != torch.float32 for value in moments.values()):
            return False
        self.optimizer.state[group["params"][0]] = {name: value.to(self.device) for name, value in moments.items()}
        return True

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision == FULL_PRECISION:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.precision))


def batch_loss(module: nn.Module, batch: Batch, device: torch.device, of: int | None = None) -> Tensor:
    """Return the mean next-token cross-entropy over labelled positions; or its share in a mean over `of` positions."""
    tokens, labels = (torch.from_numpy(array).to(device) for array in batch)
    logits = module(input_ids=tokens, use_cache=False).logits[:, :-1].flatten(0, 1).float()
    wanted = labels[:, 1:].flatten()
    if of is None:
        return nn.functional.cross_entropy(logits, wanted, ignore_index=-100)
    return nn.functional.cross_entropy(logits, wanted, ignore_index=-100, reduction="sum") / of


def each_loss(module: nn.Module, batch: Batch) -> Tensor:
    """Return the mean cross-entropy of each row over its labelled positions, nats a token: float32 [rows]."""
    tokens, labels = batch
    logits = module(input_ids=torch.from_numpy(tokens), use_cache=False).logits[:, :-1].float()
    wanted = torch.from_numpy(labels)[:, 1:]
    each = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=-100, reduction="none")
    return each.view_as(wanted).sum(1) / (wanted != -100).sum(1).clamp(min=1)


@torch.no_grad()
def row_losses(module: nn.Module, batches: Iterable[Batch]) -> Rows:
    """Return `each_loss` of all batches, concatenated: float32 [rows]."""
    return torch.cat([each_loss(module, batch) for batch in batches]).numpy()


def held_out_loss(module: nn.Module, batches: Iterable[Batch], device: str = "cpu") -> float:
    """Return the mean cross-entropy over all labelled positions of `batches`, nats a token."""
    total, count = 0.0, 0
    for loss, num_labels in held_out_losses(module, batches, device):
        total, count = total + loss * num_labels, count + num_labels
    return total / count if count else math.nan


@torch.no_grad()
def held_out_losses(module: nn.Module, batches: Iterable[Batch], device: str = "cpu") -> Iterator[tuple[float, int]]:
    """Yield for each batch its mean cross-entropy over labelled positions, nats a token, and their number."""
    was_training = module.training
    module.eval()
    try:
        for batch in batches:
            num_labels = int((batch[1][:, 1:] != -100).sum())
            loss = float(batch_loss(module, batch, torch.device(device))) if num_labels else 0.0
            yield loss, num_labels
    finally:
        module.train(was_training)
