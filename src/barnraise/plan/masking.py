"""The terms of masked sums, from a run file: the ring, the groups, and the fewest nodes of a version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnraise.config.mask_sections import SecureAggregationSection
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError
from barnraise.plan.choices import Aggregation
from barnraise.trust.signatures import RunId

LEAST_GROUP = 2


if TYPE_CHECKING:
    from barnraise.privacy.masking.ring import Ring
    from barnraise.privacy.masking.terms import MaskTerms


@dataclass(frozen=True)
class Masking:
    """The terms of a masked run; `group` is 0 where all nodes of a version are one group.

    `limit` is the magnitude at which an element of an update saturates. Raises InputError for terms that cannot hold.
    """

    section: SecureAggregationSection
    group: int
    least: int
    limit: float

    @property
    def most_members(self) -> int:
        """Return the most updates of a group, which has `group` members, and more where that leaves a rest."""
        return 2 * self.group - 1 if self.group else self.section.most

    @property
    def ring(self) -> Ring:
        """Return the ring of the sums."""
        from barnraise.privacy.masking.ring import Ring  # with numpy, which unmasked runs need later

        return Ring(self.section.value_bits, self.most_members, self.limit)

    def terms(self, exchanged: int) -> MaskTerms:
        """Return the terms of updates of `exchanged` values, whose committee has no keys yet: for their sizes."""
        from barnraise.privacy.masking.seats import blank_committee
        from barnraise.privacy.masking.terms import MaskTerms  # with cryptography, which other runs need later

        committee = blank_committee(self.section.trustees, self.section.colluding)
        return MaskTerms(RunId(""), self.ring, exchanged, committee)


def local_trustees(run_file: RunFile) -> tuple[str, ...]:
    """Return the names of the trustees that `train` starts on this machine."""
    section = run_file.privacy.secure_aggregation
    return tuple(f"trustee-{number}" for number in range(1, section.trustees + 1)) if section is not None else ()


def masking_of(run_file: RunFile, rule: Aggregation) -> Masking | None:
    """Return the terms of a masked run; None where updates travel in clear. InputError for terms that cannot hold."""
    section = run_file.privacy.secure_aggregation
    if section is None:
        return None
    from barnraise.privacy.masking.seats import blank_committee

    blank_committee(section.trustees, section.colluding)
    given = section.group
    group = 0 if given == "all" or (given is None and rule.needs == "sum") else int(given or LEAST_GROUP)
    least = max(LEAST_GROUP, rule.minimum_nodes * group if group else 0)
    if section.least is not None and section.least < least:
        raise InputError(
            f"privacy.secure_aggregation.least is {section.least}, but {rule} over groups of {group} needs {least} "
            "nodes; leave least out, or choose smaller groups"
        )
    training = run_file.training
    limit = section.limit or 2.0 * training.learning_rate * training.local_steps
    found = Masking(section, group, section.least or least, limit)
    _ = found.ring  # which refuses sums that could wrap
    return found
