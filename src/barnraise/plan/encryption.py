"""The terms of a run whose updates are encrypted, from its run file: the key, the budget, the share of an update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnraise.config.encryption_sections import HomomorphicEncryptionSection
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError
from barnraise.plan.dataset import row_lengths

if TYPE_CHECKING:
    from barnraise.privacy.encryption.envelope import Agreement

FEWEST_UPDATES = 1 << 12
"""Updates for which the budget of a run has room, at least."""

SPARE = 2
"""Factor of the updates of one step each by which a run's tokens could be trained: work is lost and done again."""


@dataclass(frozen=True)
class EncryptionTerms:
    """The terms of encrypted updates: of at most `updates` in all, each of which counts as one over `nodes`."""

    section: HomomorphicEncryptionSection
    updates: int
    nodes: int

    def agreement(self, values: int) -> Agreement:
        """Return what the host and its workers agree on for a model of `values` encrypted values."""
        from barnraise.privacy.encryption.agreed import agreed  # with numpy, which other runs need later

        return agreed(self.section.key, self.updates, self.section.bound, values)


def encryption_of(run_file: RunFile) -> EncryptionTerms | None:
    """Return the terms of encrypted updates; None where they travel otherwise. InputError for terms that cannot hold.

    A task has one step at least, so a run of T tokens has T over the tokens of a step updates at most.
    """
    section = run_file.privacy.homomorphic_encryption
    if section is None:
        return None
    from barnraise.privacy.encryption.scheme import MOST_PARTIES

    training, size = run_file.training, run_file.aggregation.buffer_size
    nodes = section.nodes or (len(run_file.workers) if isinstance(size, str) else size)
    if not nodes:
        raise InputError(
            "privacy.homomorphic_encryption.nodes is not given, nor is aggregation.buffer_size, and no workers are "
            "listed; set nodes to how many workers you expect"
        )
    most = SPARE * math.ceil(training.tokens / (training.step_rows * row_lengths(run_file)[0]))
    updates = max(FEWEST_UPDATES, 1 << (most - 1).bit_length())
    if updates > MOST_PARTIES:
        raise InputError(
            f"training.tokens is {training.tokens:,} in steps of {training.step_rows} rows, which could be "
            f"{most:,} updates, but an encrypted sum holds {MOST_PARTIES:,}; raise training.batch_size, or train on "
            "fewer tokens"
        )
    return EncryptionTerms(section, updates, nodes)
