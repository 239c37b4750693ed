"""The set of a victim's tokens: from the embedding's update, and independently from the first query's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from barnraise.core.errors import InputError
from barnraise.data.batches import Rows
from barnraise.privacy.attacks.anatomy import Anatomy, layer_inputs, readings
from barnraise.privacy.attacks.base import AttackTrial, PrivacyAttack
from barnraise.privacy.attacks.setting import AttackSetting
from barnraise.privacy.attacks.updates.shadows import Array, TokenClassifier, clear, f1, standardised

SHADOWS = 12
"""Updates of public rows on which the adversary trains its classifier."""

MOST_INPUTS = 1 << 28

OUTLIERS = 0.3
"""Share of the vocabulary that is left out of the regression of an embedding's rows, as tokens that may occur."""


class TokenSet(PrivacyAttack):
    """Base class of attacks that name the tokens of a victim, from features of each token and its frequency.

    The control has the frequency alone.
    """

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
        self.anatomy = Anatomy.of(setting.module(), setting.layout)
        counts = np.bincount(setting.public.ravel(), minlength=setting.vocab_size).astype(np.float64)
        self.frequency = standardised(counts + 0.5)
        features, present = list[Array](), list[NDArray[np.bool_]]()
        for _ in range(SHADOWS):
            members = [setting.draw_public(rng) for _ in range(self.members(setting))]
            features.append(self.described(setting, self.view(setting, members, rng)))
            present.append(self.truth(setting, members))
        self.count = float(np.mean([truth.sum() for truth in present]))
        self.classifier = TokenClassifier.fit(features, present)
        self.guess = TokenClassifier.fit([self.frequency] * SHADOWS, present).present(self.frequency)

    def trial(self, setting: AttackSetting, rng: np.random.Generator) -> AttackTrial:
        members = setting.draw(rng, self.members(setting))
        found, truth = self.found(setting, self.view(setting, members, rng)), self.truth(setting, members)
        return AttackTrial(f1(found, truth), f1(self.guess, truth))

    def members(self, setting: AttackSetting) -> int:
        """Return the number of workers whose rows are drawn, the victim's first."""
        return setting.protection.members

    def view(self, setting: AttackSetting, members: Sequence[Rows], rng: np.random.Generator) -> Tensor:
        """Return the vector that the adversary judges by."""
        return setting.protection.seen([setting.update(rows) for rows in members], rng)

    def found(self, setting: AttackSetting, seen: Tensor) -> NDArray[np.bool_]:
        """Return which tokens a vector shows, [vocabulary]: all that a clear gap sets apart, else by the classifier."""
        apart = [clear(one.double().numpy(), self.count) for one in self.strengths(setting, seen)]
        sets = [one for one in apart if one is not None]
        return np.any(sets, axis=0) if sets else self.classifier.present(self.described(setting, seen))

    def described(self, setting: AttackSetting, seen: Tensor) -> Array:
        """Return the features of each token, its frequency the last: [vocabulary, k]."""
        strengths = [standardised(one.double().numpy()) for one in self.strengths(setting, seen)]
        return np.concatenate([*strengths, self.frequency], axis=1)

    def truth(self, setting: AttackSetting, members: Sequence[Rows]) -> NDArray[np.bool_]:
        """Return which tokens are wanted: those of the victim, [vocabulary]."""
        return np.bincount(members[0].ravel(), minlength=setting.vocab_size) > 0

    @abstractmethod
    def strengths(self, setting: AttackSetting, seen: Tensor) -> list[Tensor]:
        """Return numbers of at least 0 for each token, [vocabulary], larger if it occurs."""


class EmbeddingTokens(TokenSet):
    """Names the tokens whose rows of the embedding, or of an output layer of its own, moved otherwise than most.

    A row of the embedding has a gradient only if its token occurs. All rows of an output layer (and of an embedding
    that is tied to it) move: those of tokens that do not occur by a smooth function of the row itself, since their
    gradient is their probability times the hidden states. A regression takes that away.
    """

    def strengths(self, setting: AttackSetting, seen: Tensor) -> list[Tensor]:
        moved, start = setting.parts(seen), setting.parts(setting.start)
        names = [self.anatomy.embedding, *([self.anatomy.output] if self.anatomy.output else [])]
        found = [unexplained(moved[name], start[name]) for name in names]
        return found + [torch.linalg.vector_norm(moved[name], dim=1) for name in names]


class UnionTokens(EmbeddingTokens):
    """Names the tokens of a whole group from its sum: masks hide which member has a token, not that one has it."""

    def truth(self, setting: AttackSetting, members: Sequence[Rows]) -> NDArray[np.bool_]:
        return super().truth(setting, [np.concatenate(members)])


class QueryTokens(TokenSet):
    """Names the tokens whose inputs of the first attention lie in the row space of its query's update.

    Petrov et al. 2024 ("DAGER"), section 4.1. Where positions are added to embeddings, each token is tried at each
    position.
    """

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
        self.inputs = first_inputs(setting, Anatomy.of(setting.module(), setting.layout))
        super().prepare(setting, rng)

    def strengths(self, setting: AttackSetting, seen: Tensor) -> list[Tensor]:
        rows = readings(self.anatomy.projections[0], setting.parts(seen), query_only=True)
        basis = row_space(rows, setting.training.rows * setting.length)
        outside = torch.linalg.vector_norm(self.inputs - self.inputs @ basis.T @ basis, dim=-1).amin(0)
        return [1.0 / (outside + 1e-6)]


def unexplained(moved: Tensor, start: Tensor, rounds: int = 3) -> Tensor:
    """Return the length of each row's movement that a linear function of the row at the start leaves: [rows].

    The regression leaves out the rows that it explains worst, in `rounds` rounds. Weight decay is linear in the row, so
    that it is explained, too.
    """
    inputs = torch.cat([torch.ones(len(start), 1), start / start.std()], dim=1).double()
    wanted, kept = moved.double(), torch.ones(len(start), dtype=torch.bool)
    length: Tensor = torch.linalg.vector_norm(wanted, dim=1)
    for _ in range(rounds):
        some = inputs[kept]
        gram = some.T @ some + 1e-6 * len(some) * torch.eye(inputs.shape[1], dtype=torch.float64)
        left = wanted - inputs @ torch.linalg.solve(gram, some.T @ wanted[kept])
        length = torch.linalg.vector_norm(left, dim=1)
        kept = length <= length.quantile(1.0 - OUTLIERS)
    return length


def first_inputs(setting: AttackSetting, anatomy: Anatomy) -> Tensor:
    """Return the unit inputs of the first attention for each token at each position: [length, vocabulary, hidden].

    InputError when there are more than `MOST_INPUTS` numbers.
    """
    width = setting.parts(setting.start)[anatomy.embedding].shape[1]
    if (numbers := setting.length * setting.vocab_size * width) > MOST_INPUTS:
        raise InputError(
            f"{setting.length} places of {setting.vocab_size:,} tokens of width {width} are {numbers:,} numbers, but "
            f"this attack keeps {MOST_INPUTS:,} at most; attack a smaller vocabulary or shorter rows"
        )
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
