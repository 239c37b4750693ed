"""Text by gradient matching: inputs are optimised until their gradient is that of the victim (as DLG).

Zhu et al. 2019, "Deep leakage from gradients". As in later attacks on text, the candidates are the tokens that the
embedding shows (Gupta et al. 2022, "FILM"), and the distance is the cosine (Geiping et al. 2020).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from barnraise.data.batches import Rows
from barnraise.privacy.attacks.setting import AttackSetting
from barnraise.privacy.attacks.updates.text import TextAttack
from barnraise.privacy.attacks.updates.tokens import EmbeddingTokens

STEPS, RATE = 100, 0.2


class Inversion(TextAttack):
    """Optimises mixtures of candidate tokens, softmax of logits [rows, length, candidates], which are labels, too."""

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
        super().prepare(setting, rng)
        self.tokens = EmbeddingTokens()
        self.tokens.prepare(setting, rng)

    def reconstruct(self, setting: AttackSetting, seen: Tensor, rng: np.random.Generator) -> Rows:
        candidates = torch.from_numpy(np.flatnonzero(self.tokens.found(setting, seen)))
        if not len(candidates):
            candidates = torch.from_numpy(np.argsort(-self.tokens.frequency[:, 0])[:1].copy())
        shape = (setting.training.rows, setting.length, len(candidates))
        logits = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).requires_grad_(True)
        module, optimizer = setting.module(), torch.optim.Adam([logits], RATE)
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        targets = [part.detach() for part in setting.parts(seen).values()]
        table = setting.parts(setting.start)[self.anatomy.embedding][candidates]
        with sdpa_kernel(SDPBackend.MATH):
            for _ in range(STEPS):
                loss = soft_loss(module, logits.softmax(-1), table, candidates)
                gradients = torch.autograd.grad(loss, parameters, create_graph=True)
                (logits.grad,) = torch.autograd.grad(mismatch(gradients, targets), [logits])
                optimizer.step()
        found: Rows = candidates[logits.argmax(-1)].numpy()
        return found


def soft_loss(module: nn.Module, mixture: Tensor, table: Tensor, candidates: Tensor) -> Tensor:
    """Return the mean cross-entropy of mixtures of tokens, of which each is the label of the place before."""
    logits = module(inputs_embeds=mixture @ table, use_cache=False).logits[:, :-1]
    chances = logits.log_softmax(-1)[..., candidates]
    found: Tensor = -(mixture[:, 1:] * chances).sum(-1).mean()
    return found


def mismatch(gradients: tuple[Tensor, ...], targets: list[Tensor]) -> Tensor:
    """Return the sum over tensors of one minus the cosine of gradient and target."""
    found = [
        1.0 - (one * other).sum() / (one.norm() * other.norm() + 1e-20)
        for one, other in zip(gradients, targets, strict=True)
    ]
    return torch.stack(found).sum()
