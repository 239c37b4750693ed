"""The data section of a run whose rows stay with their owners."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from barnraise.config.data_sections import HeldOutShare, TokenizedData
from barnraise.config.section import Section
from barnraise.config.values import RowLength, Text

ReleaseSetting = Literal["exact", "noised", "off"]
SwitchSetting = Literal["exact", "off"]


class ReleasesSection(Section):
    """The settings of what each site sends besides its updates; a site may release less (`join --release`)."""

    loss: ReleaseSetting = Field(
        default="exact", description="The mean training loss of each task; `noised`: by 0.25 nats."
    )
    seconds: ReleaseSetting = Field(
        default="exact", description="The seconds that each task took; `noised`: by about a quarter."
    )
    telemetry: SwitchSetting = Field(default="exact", description="The load of the machine and its link, each minute.")
    machine: SwitchSetting = Field(
        default="exact", description="The profile of the machine: its measured speed, memory, cores and device."
    )
    held_out: Literal["each", "mean", "off"] = Field(
        default="mean",
        description="A version's loss on a site's own held-out rows: `each` site's on the ledger, only the `mean` over "
        "the sites, or none.",
    )


class OwnFilesSection(Section):
    """The files of a site, and what it sends besides updates."""

    files: Annotated[list[Text], Field(min_length=1, max_length=1000)] = Field(
        description="Files, folders or glob patterns of text, or records with a `text` field; or one folder with a "
        "dataset of the run's tokenizer and context."
    )
    releases: ReleasesSection = Field(
        default_factory=lambda: ReleasesSection(),
        description="What this site sends at most: the more reserved setting of this and `data.releases` counts.",
    )


class SiteData(TokenizedData):
    """Text that stays with its owners: each worker (a site) trains on its own files, and the controller has no row."""

    kind: Literal["site"] = Field(description="This section describes rows that stay with their owners.")
    context: RowLength = Field(default=128, description="Tokens a row.")
    held_out: HeldOutShare = Field(default=0.05, description="Share of its rows that each site keeps for evaluation.")
    public_held_out: list[Text] = Field(
        default=[],
        description="Files, folders or glob patterns of the host's own, public text, on which the controller measures "
        "the held-out loss. Without them the sites measure it (`evaluation.by: sites`).",
    )
    sites_per_version: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0,
        description="Share of the present sites that may train from each version, drawn by run.seed; no fewer than "
        "the aggregation rule needs.",
    )
    releases: ReleasesSection = Field(
        default_factory=lambda: ReleasesSection(), description="What each site sends besides its updates."
    )
