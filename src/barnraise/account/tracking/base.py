"""The interface of experiment trackers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class VersionFigures(NamedTuple):
    """Figures of one version by name, from the row `row_id` of the ledger; `seconds` on the run's clock.

    `samples` is what the version generated after its prompts, as Markdown; empty where nothing was generated.
    """

    row_id: int
    version: int
    seconds: float
    figures: Mapping[str, float]
    samples: str = ""


class Tracker(ABC):
    """Takes the figures of one run; its files are in `folder`, unless it is told of a server by its own variables."""

    @abstractmethod
    def __init__(self, run: str, folder: Path) -> None: ...

    @abstractmethod
    def log(self, point: VersionFigures) -> None:
        """Take the figures of a version. Those of a later version may come first."""

    @abstractmethod
    def close(self) -> None:
        """Write what is not written yet."""
