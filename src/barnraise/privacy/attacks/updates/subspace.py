"""Text by continuous optimisation towards the subspaces of the gradients (as TIGER).

Kalikman et al. 2026, "TIGER" (arXiv 2606.18312): instead of testing tokens for membership in a span, which noise
breaks, embeddings are optimised until the inputs of the attentions are near the spans.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from barnraise.data.batches import Rows
from barnraise.privacy.attacks.anatomy import Projection, layer_inputs, readings
from barnraise.privacy.attacks.setting import AttackSetting
from barnraise.privacy.attacks.updates.exact_text import distance
from barnraise.privacy.attacks.updates.text import TextAttack
from barnraise.privacy.attacks.updates.tokens import first_inputs

STEPS, RATE = 40, 0.3
APART = 0.5
"""Weight of the likeness of two rows at the same place, which would else become one."""

START = 4.0
"""Scale of the logits at the start, in standard deviations of the tokens' distances."""


class Subspace(TextAttack):
    """Optimises mixtures of token embeddings, softmax of logits [rows, length, vocabulary].

    The loss is the part of the inputs of the first two attentions outside the gradients' row spaces, in which each
    direction counts by its signal over signal and noise. The logits start at the tokens' distances to the first space
    and their frequency in public rows.
    """

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
        super().prepare(setting, rng)
        self.inputs = first_inputs(setting, self.anatomy)
        counts = np.bincount(setting.public.ravel(), minlength=setting.vocab_size) + 0.5
        self.frequency = torch.from_numpy(np.log(counts / counts.sum())).float()

    def reconstruct(self, setting: AttackSetting, seen: Tensor, rng: np.random.Generator) -> Rows:
        parts, positions = setting.parts(seen), setting.training.rows * (setting.length - 1)
        spaces = [weighted_space(readings(one, parts), positions) for one in self.anatomy.projections[:2]]
        near = -distance(self.inputs, spaces[0])
        near = (near - near.mean(1, keepdim=True)) / (near.std(1, keepdim=True) + 1e-9)
        shape = (setting.training.rows, setting.length, setting.vocab_size)
        noise = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
        logits = (START * near + self.frequency + noise).requires_grad_(True)
        module, optimizer = setting.module(), torch.optim.Adam([logits], RATE)
        table = setting.parts(setting.start)[self.anatomy.embedding]
        for _ in range(STEPS):
            mixture = logits.softmax(-1)
            embedded = mixture @ table
            loss = sum(
                (outside(module, one, embedded, space) for one, space in zip(self._firsts, spaces, strict=True)),
                torch.zeros(()),
            )
            alike = torch.einsum("apv,bpv->ab", mixture, mixture) / setting.length
            loss = loss + APART * (alike.sum() - alike.diagonal().sum())
            (logits.grad,) = torch.autograd.grad(loss, [logits])
            optimizer.step()
        found: Rows = logits.argmax(-1).numpy()
        return found

    @property
    def _firsts(self) -> tuple[Projection, ...]:
        return self.anatomy.projections[:2]


def outside(module: torch.nn.Module, projection: Projection, embedded: Tensor, space: Tensor) -> Tensor:
    """Return the sum over places of the share of the inputs outside a space; the last place is in no gradient."""
    inputs = layer_inputs(module, projection, inputs_embeds=embedded)[:, :-1]
    return distance(inputs, space).sum()


def weighted_space(rows: Tensor, positions: int) -> Tensor:
    """Return the strongest `positions` directions of the row space, [rank, columns], weighted by signal over both.

    The values beyond the positions are noise; their mean square is its level in each direction. Without any, or where
    they are 0, all directions count fully.
    """
    _, values, basis = torch.linalg.svd(rows.double(), full_matrices=False)
    rank = min(positions, max(1, rows.shape[1] // 2))
    floor = values[rank:].square().mean() if rank < len(values) else torch.zeros((), dtype=torch.float64)
    strength = ((values[:rank].square() - floor) / (values[:rank].square() + 1e-300)).clamp(min=0.0)
    found: Tensor = (basis[:rank] * strength.sqrt()[:, None]).float()
    return found
