"""Muon (Jordan et al. 2024) for hidden matrices, and AdamW for embeddings, the output layer, norms and biases."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor

from barnraise.models.exchange.layout import Leaf
from barnraise.training.catalog import ALL, AT_ONCE
from barnraise.training.matrices import batches, is_hidden

from .adamw import Ranges
from .base import Parameters, SignedOptimizer, decay_ranges, shortened

COEFFICIENTS = 3.4445, -4.7750, 2.0315
"""Coefficients of the polynomial that moves singular values between 0 and 1 to 0.7 to 1.2 in five steps."""

STEPS = 5

SPAN = {"cpu": 0}
"""Values of the matrices that are orthogonalised at a time, or one matrix, by the kind of device; AT_ONCE on others."""

AS_ADAMW = 0.2
"""Root mean square of a step at a rate of 1, as AdamW's steps have (Liu et al. 2025, "Muon is Scalable", section 2.2).

So one learning rate and one weight decay are right for all parameters.
"""


def orthogonalised(matrices: Tensor) -> Tensor:
    """Return about the nearest matrices whose singular values are all 1: U V^T of U S V^T, by Newton-Schulz steps.

    `matrices` is one, or several of one shape behind one another. In float32 on CPUs, few of which multiply bfloat16
    fast, and in bfloat16 on accelerators.
    """
    wide = matrices if matrices.shape[-2] <= matrices.shape[-1] else matrices.mT
    found: Tensor = wide / torch.linalg.vector_norm(wide, dim=(-2, -1), keepdim=True).clamp_(min=1e-7)
    if found.device.type != "cpu":
        found = found.bfloat16()
    add_product = torch.addmm if found.ndim == 2 else torch.baddbmm
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        gram = found @ found.mT
        found = add_product(found, add_product(gram, gram, gram, beta=b, alpha=c), found, beta=a)
    found = found.to(matrices.dtype)
    return found if wide is matrices else found.mT


class Muon(SignedOptimizer):
    """Applies m <- b m + (1-b) g; theta <- (1 - rate decay) theta - rate 0.2 sqrt(max(rows, columns)) O to matrices.

    O is the orthogonalised (1-b) g + b m (Nesterov). All other parameters take AdamW's steps. m and AdamW's first
    moments are one vector; second moments exist for the other parameters alone, one behind the other.
    """

    moment_names: tuple[str, ...] = ("momentum", "exp_avg_sq")

    def __init__(self, *, momentum: float, beta1: float, beta2: float, weight_decay: float) -> None:
        super().__init__()
        self.momentum, self.betas, self.weight_decay = momentum, (beta1, beta2), weight_decay

    def bind(self, flat: Parameters, decays: str = ALL) -> None:
        self._batches = batches(flat.layout, SPAN.get(flat.vector.device.type, AT_ONCE))
        others = [leaf for leaf in flat.layout.leaves if not is_hidden(leaf)]
        self._others = decay_ranges(others, decays)
        super().bind(flat, decays)

    @property
    def decay(self) -> float:
        return self.momentum

    @property
    def ramp_steps(self) -> int:
        """Return the steps until both kinds of moments are means of many gradients."""
        return round(1.0 / (1.0 - max(self.momentum, self.betas[1])))

    def zeros(self) -> dict[str, Tensor]:
        size = sum(place.stop - place.start for place, _ in self._others)
        return {"momentum": torch.zeros_like(self.vector), "exp_avg_sq": self.vector.new_zeros(size)}

    def prepare(self) -> None:
        vectors = self.vector, self.gradient, self.moments["momentum"]
        self._adamw = Ranges(self._others, self.betas, self.weight_decay).over_parts(
            [[vector[place] for place, _ in self._others] for vector in vectors] + [self._seconds()]
        )
        self._views = [
            [[vector[leaf.place].view(leaf.shape) for leaf in batch] for vector in vectors] for batch in self._batches
        ]

    def apply(self, rate: float) -> Iterator[slice]:
        yield slice(0, len(self.vector))
        for batch, (weights, gradients, momenta) in zip(self._batches, self._views, strict=True):
            torch._foreach_lerp_(momenta, gradients, 1.0 - self.momentum)
            torch._foreach_lerp_(gradients, momenta, self.momentum)
            if len(batch) == 1:
                steps = [orthogonalised(gradients[0])]
            else:
                steps = list(orthogonalised(torch.stack(gradients)).contiguous().unbind())
            torch._foreach_mul_(weights, 1.0 - rate * self.weight_decay)
            torch._foreach_add_(weights, steps, alpha=-rate * _length(batch[0]))
        self._adamw.step(self.steps, rate)

    def momentum_of(self, direction: Tensor, like: Tensor) -> Tensor:
        """Return the momentum whose orthogonalised matrices have the mean D, where the direction is 0.2 sqrt(max) D.

        Let the gradients of a matrix with n rows and c >= n columns be M plus normal noise. The orthogonalised matrix
        is that of X = M + t Z, where the elements of Z have a deviation of 1. Where noise prevails, X X^T is close to
        t^2 c I (the more so the larger c / n), and so

            O = (X X^T)^(-1/2) X = (M + t Z) / (t sqrt(c)).

        The mean of O over steps and workers is D = M / (t sqrt(c)). The norm of t Z is t sqrt(n c), so M = D |t Z| /
        sqrt(n). For square matrices the response is 8 / (3 pi) = 0.85 of that: by Stein's lemma it is the mean of the
        noise's singular values over the root of their mean square. The deviation of X is larger than that of m, by

            k = sqrt((1-b) (1+b)^3 + b^4),    1.09 at b = 0.95,

        since Nesterov's momentum counts the last gradient more. The norm of a worker's own m (`like`) is about that of
        its noise: M = D k |m| / sqrt(n). If all steps were the same, the singular values of D would be 1, and M as long
        as m; what workers do not share is shorter in D. M is never longer than m. AdamW's parameters follow by its
        own rule: D sqrt(v').
        """
        b = self.momentum
        ratio = math.sqrt((1.0 - b) * (1.0 + b) ** 3 + b**4)
        for leaf in chain.from_iterable(self._batches):
            own, found = torch.linalg.vector_norm(like[leaf.place]), direction[leaf.place]
            found.mul_(own * (ratio / math.sqrt(min(leaf.shape)) / _length(leaf)))
            shortened(found, own)
        beta1, beta2 = self.betas
        for (place, _), second in zip(self._others, self._seconds(), strict=True):
            root = (second / (1.0 - beta2**self.steps)).sqrt_()
            direction[place].mul_(root).mul_(1.0 - beta1**self.steps)
            longest = torch.linalg.vector_norm(root) * math.sqrt((1.0 - beta1) / (1.0 + beta1))
            shortened(direction[place], longest)
        return direction

    def expect(self, direction: Tensor | None, second: Tensor | None, steps: float) -> None:
        super().expect(direction, second, steps)
        if second is not None:
            for (place, _), own in zip(self._others, self._seconds(), strict=True):
                own.copy_(second[place] * (1.0 - self.betas[1] ** steps))

    def second_moments(self) -> Tensor | None:
        """Return those of AdamW's parameters; for matrices the guess of a task from version 0, which never changes."""
        if not self.moments:
            return None
        found = torch.full_like(self.vector, 1.0 / len(self.vector))
        for (place, _), own in zip(self._others, self._seconds(), strict=True):
            found[place] = own / (1.0 - self.betas[1] ** self.steps)
        return found

    def _seconds(self) -> list[Tensor]:
        """Return the second moments of each range of AdamW's parameters."""
        return list(torch.split(self.moments["exp_avg_sq"], [place.stop - place.start for place, _ in self._others]))


def _length(leaf: Leaf) -> float:
    return AS_ADAMW * math.sqrt(max(leaf.shape))
