"""The sections of a run file about what others may learn of the rows that a run trains on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from barnraise.config.encryption_sections import HomomorphicEncryptionSection
from barnraise.config.mask_sections import SecureAggregationSection
from barnraise.config.section import Section
from barnraise.config.values import Positive

NOISE, EXAMPLE, SITE = "noise", "example", "site"
"""The profiles: no unit, one row, one site."""

Epsilon = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
Delta = Annotated[float, Field(gt=0, lt=0.1)]


class DifferentialPrivacySection(Section):
    """Clipping and random noise, and the bound that follows on what the run tells of one row, or of one site."""

    model_config = ConfigDict(json_schema_extra={"x-expected": "a section of keys: profile, epsilon, delta, clip"})

    profile: Literal["noise", "example", "site"] = Field(
        default="example",
        description="The unit that noise hides. example: one row, by gradients of single rows that are clipped and "
        "noised in each local step. site: all rows of one site, by clipping and noising each of its updates. noise: "
        "each update is clipped and noised, and no epsilon is claimed.",
    )
    epsilon: Epsilon | None = Field(
        default=None, description="The budget; the run ends before it spends more. Needed but for the profile noise."
    )
    delta: Delta | None = Field(
        default=None,
        description="Probability with which the bound may fail; well below 1 over the number of units. Needed but for "
        "the profile noise.",
    )
    clip: Positive = Field(
        default=1.0,
        description="Largest L2 norm of a row's gradient (example), or of an update (site, noise); longer ones are "
        "shortened to it before noise is added.",
    )
    noise: Positive | Literal["auto"] = Field(
        default="auto",
        description="Standard deviation of the noise on each value, as a multiple of clip; auto is the smallest that "
        "keeps epsilon after `uses`.",
    )
    uses: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="Most tasks that one row may be in (example; 4 when not given: a pass over the data is one, and "
        "each repetition of lost work), or that one site may get (site; 100 when not given).",
    )
    honest: Annotated[int, Field(ge=2, le=1024)] | None = Field(
        default=None,
        description="With the profile site and secure_aggregation: members of each masked sum that keep their noise to "
        "themselves, at least. Each adds a share of the noise, and the shares of this many are the whole. When not "
        "given, each adds the whole noise.",
    )

    @property
    def most_uses(self) -> int:
        """Return the largest number of tasks that one unit may be in."""
        return self.uses if self.uses is not None else USUAL_USES[self.profile]


USUAL_USES = {NOISE: 0, EXAMPLE: 4, SITE: 100}
"""Tasks of one unit for which automatic noise is enough, by profile."""


class PrivacySection(Section):
    """Protection of the rows from the host, the other workers, and the readers of the model."""

    differential_privacy: DifferentialPrivacySection | None = Field(
        default=None, description="Noise that bounds what can be told of one row or one site; null is none."
    )
    secure_aggregation: SecureAggregationSection | None = Field(
        default=None,
        description="Sums under masks: trustees hold the masks' seeds, and the controller reads no single update.",
    )
    homomorphic_encryption: HomomorphicEncryptionSection | None = Field(
        default=None,
        description="Sums of encrypted updates: workers hold a key, and the controller has neither updates nor model.",
    )
    overhead_limit: Annotated[float, Field(ge=1, le=1000)] = Field(
        default=1.5,
        description="Largest time of a worker's work with protections over the time without. A run that is estimated "
        "to pass it by far is refused; the host is told when workers measure more.",
    )
