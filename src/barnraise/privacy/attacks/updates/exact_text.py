"""The exact text of a victim, by spans of the first two attentions' gradients (as DAGER).

Petrov et al. 2024, "DAGER: Exact gradient inversion for large language models": the gradient of a projection W x is a
sum of outer products with its inputs, so while there are fewer positions than columns, a token's input lies in the row
space only if it occurs. The first attention tells the tokens of each place, and the second, whose inputs depend on all
tokens before, tells which of their sequences occur.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from barnraise.data.batches import Rows
from barnraise.privacy.attacks.anatomy import Projection, layer_inputs, readings
from barnraise.privacy.attacks.setting import AttackSetting
from barnraise.privacy.attacks.updates.text import TextAttack
from barnraise.privacy.attacks.updates.tokens import first_inputs, row_space

TOKENS, BEAMS = 32, 16
"""Tokens that are tried at each place, and sequences that are kept."""


class ExactText(TextAttack):
    """Recovers rows greedily, from left to right, with a beam of the sequences nearest to the second row space.

    The last token of a row is no input of any loss: no gradient of an attention shows it.
    """

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
        super().prepare(setting, rng)
        self.inputs = first_inputs(setting, self.anatomy)

    def reconstruct(self, setting: AttackSetting, seen: Tensor, rng: np.random.Generator) -> Rows:
        first, second = spans(setting, seen, self.anatomy.projections[:2])
        far = distance(self.inputs, first)
        module, rows = setting.module(), setting.training.rows
        beams, costs = torch.zeros(1, 0, dtype=torch.long), torch.zeros(1)
        with torch.no_grad():
            for place in range(setting.length):
                tokens = far[place].topk(min(TOKENS, setting.vocab_size), largest=False).indices
                longer = torch.cat([beams.repeat_interleave(len(tokens), 0), tokens.repeat(len(beams))[:, None]], dim=1)
                if place == setting.length - 1:  # no gradient shows it
                    beams = longer[:: len(tokens)]
                    break
                inputs = layer_inputs(module, self.anatomy.projections[1], input_ids=longer)[:, -1]
                steps = distance(inputs, second) + far[place][longer[:, -1]]
                costs = costs.repeat_interleave(len(tokens)) + steps
                kept = costs.topk(min(max(BEAMS, 2 * rows), len(costs)), largest=False).indices
                beams, costs = longer[kept], costs[kept]
        return beams[:rows].numpy()


def spans(setting: AttackSetting, seen: Tensor, projections: Sequence[Projection]) -> list[Tensor]:
    """Return orthonormal bases of the inputs' spans of these projections, [rank, hidden] each."""
    parts, positions = setting.parts(seen), setting.training.rows * (setting.length - 1)
    return [row_space(readings(one, parts), positions) for one in projections]


def distance(inputs: Tensor, basis: Tensor) -> Tensor:
    """Return the share of each input's length outside a span with an orthonormal `basis`."""
    units = torch.nn.functional.normalize(inputs, dim=-1)
    found: Tensor = torch.linalg.vector_norm(units - units @ basis.T @ basis, dim=-1)
    return found
