"""The set of a victim's tokens: from the embedding's update, and independently from the first query's."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from barnraise.data.batches import Rows
from barnraise.privacy.attacks.anatomy import Anatomy, layer_inputs, readings
from barnraise.privacy.attacks.base import AttackTrial, PrivacyAttack
from barnraise.privacy.attacks.setting import AttackSetting

SAMPLES = 32
"""Draws of public rows from which the adversary learns how many distinct tokens an update has."""


class EmbeddingTokens(PrivacyAttack):
    """Names the tokens whose rows of the embedding, or of an output layer of its own, moved most.

    A row of the embedding has a gradient only if its token occurs. Where the output layer is tied to the embedding, all
    rows move along one direction, and those of the tokens that occur leave it.
    """

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
        self.anatomy = Anatomy.of(setting.module(), setting.layout)
        self.frequent = frequencies(setting)
        self.count = usual_count(setting, rng, 1)

    def trial(self, setting: AttackSetting, rng: np.random.Generator) -> AttackTrial:
        members, seen = setting.group(rng)
        return self.judge(members[0], self.find(setting, seen))

    def find(self, setting: AttackSetting, seen: Tensor) -> set[int]:
        """Return the tokens that the vector shows."""
        return chosen(evidence(setting, self.anatomy, seen), self.count)

    def judge(self, rows: Rows, found: set[int]) -> AttackTrial:
        """Compare what was found with the tokens of `rows`, and so the control's guess: the most frequent tokens."""
        present = set(np.unique(rows).tolist())
        return AttackTrial(f1(found, present), f1(set(self.frequent[: self.count].tolist()), present))


class UnionTokens(EmbeddingTokens):
    """Names the tokens of a whole group from its sum: masks hide which member has a token, not that one has it."""

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
        super().prepare(setting, rng)
        self.count = usual_count(setting, rng, setting.protection.members)

    def trial(self, setting: AttackSetting, rng: np.random.Generator) -> AttackTrial:
        members, seen = setting.group(rng)
        return self.judge(np.concatenate(members), self.find(setting, seen))


class QueryTokens(EmbeddingTokens):
    """Names the tokens whose inputs of the first attention lie in the row space of its query's update.

    Petrov et al. 2024 ("DAGER"), section 4.1. Where positions are added to embeddings, each token is tried at each
    position.
    """

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
        super().prepare(setting, rng)
        self.inputs = first_inputs(setting, self.anatomy)

    def find(self, setting: AttackSetting, seen: Tensor) -> set[int]:
        rows = readings(self.anatomy.projections[0], setting.parts(seen), query_only=True)
        basis = row_space(rows, setting.training.rows * setting.length)
        inside = torch.linalg.vector_norm(self.inputs @ basis.T, dim=-1).amax(0)
        return chosen_by_gap(1.0 - inside, self.count)


def first_inputs(setting: AttackSetting, anatomy: Anatomy) -> Tensor:
    """Return the unit inputs of the first attention for each token at each position: [length, vocabulary, hidden]."""
    module, tokens = setting.module(), torch.arange(setting.vocab_size)
    at_once = max(1, 2**16 // setting.length)
    with torch.no_grad():
        found = torch.cat(
            [
                layer_inputs(module, anatomy.projections[0], input_ids=some[:, None].expand(-1, setting.length))
                for some in torch.split(tokens, at_once)
            ]
        )
    return torch.nn.functional.normalize(found, dim=-1).transpose(0, 1).contiguous()


def row_space(rows: Tensor, positions: int, tolerance: float = 1e-5) -> Tensor:
    """Return an orthonormal basis of the row space, [rank, columns].

    At most `positions` directions, those with singular values above `tolerance` of the largest. If all directions have
    one, the space is full and says nothing: then the strongest half is taken.
    """
    _, values, basis = torch.linalg.svd(rows.double(), full_matrices=False)
    rank = min(positions, int((values > tolerance * values[0]).sum()))
    if rank >= rows.shape[1]:
        rank = rows.shape[1] // 2
    found: Tensor = basis[: max(rank, 1)].float()
    return found


def evidence(setting: AttackSetting, anatomy: Anatomy, seen: Tensor) -> Tensor:
    """Return how much each token's rows moved otherwise than the rows of most tokens: [vocabulary]."""
    parts, start = setting.parts(seen), setting.parts(setting.start)
    decay = setting.training.learning_rate * setting.training.steps * setting.training.options.get("weight_decay", 0.0)
    found = torch.zeros(setting.vocab_size)
    for name in [anatomy.embedding, *([anatomy.output] if anatomy.output else [])]:
        moved = parts[name] - decay * start[name]
        common = moved.median(0).values
        length = torch.linalg.vector_norm(common)
        if length > 0:
            direction = common / length
            moved = moved - (moved @ direction)[:, None] * direction
        found = torch.maximum(found, torch.linalg.vector_norm(moved, dim=1))
    return found


def chosen(strength: Tensor, count: int) -> set[int]:
    """Return the tokens of largest strength: those that stand out by a gap, else the `count` largest."""
    return chosen_by_gap(-strength.clamp(min=float(strength.max()) * 1e-9 + 1e-30).log(), count)


def chosen_by_gap(distance: Tensor, count: int) -> set[int]:
    """Return the tokens of smallest distance, up to the widest gap between `count` / 2 and 2 `count` of them.

    `count` of them where no gap stands out: where the widest is below four times the others' mean.
    """
    ordered, places = distance.double().sort()
    low, high = max(1, count // 2), min(2 * count, len(ordered) - 1)
    gaps = ordered[low : high + 1] - ordered[low - 1 : high]
    widest = int(gaps.argmax())
    clear = float(gaps[widest]) > 4.0 * float(gaps.sum() - gaps[widest]) / max(1, len(gaps) - 1)
    return set(places[: low + widest if clear else count].tolist())


def frequencies(setting: AttackSetting) -> Rows:
    """Return the tokens, those that are most frequent in public rows first."""
    return np.argsort(-np.bincount(setting.public.ravel(), minlength=setting.vocab_size), kind="stable")


def usual_count(setting: AttackSetting, rng: np.random.Generator, members: int) -> int:
    """Return the usual number of distinct tokens in the updates of `members` workers, from public rows."""
    counts = [
        len(np.unique(np.concatenate([setting.draw_public(rng) for _ in range(members)]))) for _ in range(SAMPLES)
    ]
    return max(1, round(float(np.mean(counts))))


def f1(found: set[int], present: set[int]) -> float:
    """Return the harmonic mean of precision and recall.

    >>> round(f1({1, 2, 3}, {2, 3, 4, 5}), 3)
    0.571
    """
    return 2.0 * len(found & present) / max(1, len(found) + len(present))
