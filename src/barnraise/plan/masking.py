"""The terms of masked sums, from a run file: the ring, the groups, and the fewest nodes of a version."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnraise.config.mask_sections import SecureAggregationSection
from barnraise.config.privacy_sections import EXAMPLE, DifferentialPrivacySection
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError
from barnraise.plan.choices import Aggregation
from barnraise.trust.signatures import RunId

LEAST_GROUP = 2

USUAL_BITS, SHARED_BITS = 12, 16
"""Bits of a value: finer steps where noise is shared, since rounding must not lengthen an update much."""

if TYPE_CHECKING:
    from barnraise.privacy.masking.ring import Ring
    from barnraise.privacy.masking.terms import MaskTerms


@dataclass(frozen=True)
class Masking:
    """The terms of a masked run; `group` is 0 where all nodes of a version are one group.

    `limit` is the magnitude at which an element of an update saturates, and `deviation` the standard deviation of each
    member's share of noise, 0 where they share none. Raises InputError for terms that cannot hold.
    """

    section: SecureAggregationSection
    group: int
    least: int
    limit: float
    deviation: float = 0.0

    @property
    def fewest(self) -> int:
        """Return the fewest updates of a group."""
        return self.group or self.least

    @property
    def most_members(self) -> int:
        """Return the most updates of a group, which has `group` members, and more where that leaves a rest."""
        return 2 * self.group - 1 if self.group else self.section.most

    @property
    def ring(self) -> Ring:
        """Return the ring of the sums."""
        from barnraise.privacy.masking.ring import Ring  # with numpy, which unmasked runs need later

        bits = self.section.value_bits or (SHARED_BITS if self.deviation else USUAL_BITS)
        return Ring(bits, self.most_members, self.limit, self.deviation)

    def terms(self, exchanged: int) -> MaskTerms:
        """Return the terms of updates of `exchanged` values, whose committee has no keys yet: for their sizes."""
        from barnraise.privacy.masking.seats import blank_committee
        from barnraise.privacy.masking.terms import MaskTerms  # with cryptography, which other runs need later

        committee = blank_committee(self.section.trustees, self.section.colluding)
        return MaskTerms(RunId(""), self.ring, exchanged, committee)

    def sums_bytes(self, exchanged: int, nodes: int) -> int:
        """Return the bytes of the sums of masks that trustees send for a version of `nodes` nodes, if all answer."""
        from barnraise.privacy.masking.groups import count_groups

        terms = self.terms(exchanged)
        assert terms.committee is not None
        portions = terms.committee.portions(range(terms.committee.size))
        return len(portions) * count_groups(nodes, self.group) * terms.word_bytes


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
    training, least = run_file.training, section.least or least
    limit, deviation = 2.0 * training.learning_rate * training.local_steps, 0.0
    if (private := run_file.privacy.differential_privacy) and private.profile != EXAMPLE and private.noise != "auto":
        limit, deviation = _noised(private, private.noise, group or least)
    if deviation and section.limit is not None and section.limit < limit:
        raise InputError(
            f"privacy.secure_aggregation.limit is {section.limit:g}, but the clip and the noise of a sum need "
            f"{limit:.4g}; leave limit out"
        )
    found = Masking(section, group, least, section.limit or limit, deviation)
    from barnraise.privacy.masking.noise_share import LEAST_STEPS

    ring = found.ring  # which refuses sums that could wrap
    if deviation and deviation / ring.step < LEAST_STEPS:
        raise InputError(
            f"privacy.secure_aggregation: a share of noise is {deviation / ring.step:.3g} steps of the ring, but needs "
            f"{LEAST_STEPS:g}; raise value_bits"
        )
    return found


def _noised(private: DifferentialPrivacySection, noise: float, fewest: int) -> tuple[float, float]:
    """Return the magnitude that elements need with noise on updates, and the deviation of a share of noise.

    Where each member adds the whole noise, its own elements saturate. Where they share it, no element does, and the sum
    of the fewest members has room for its noise.
    """
    from barnraise.privacy.accounting import noise_share
    from barnraise.privacy.masking.noise_share import TAIL

    if private.honest is None:
        return private.clip * (1.0 + TAIL * noise), 0.0
    deviation = noise_share(noise, private.honest) * private.clip
    return private.clip + TAIL * deviation / math.sqrt(fewest), deviation
