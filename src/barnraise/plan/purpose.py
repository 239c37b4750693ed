"""The purpose of a run file: some keys matter to one command and not to another."""

from __future__ import annotations

from enum import Enum


class Purpose(Enum):
    """The command that will use the run file."""

    TRAIN = "train"  # controller and local workers here
    LAB = "lab"  # the same, with workers behind emulated links
    SERVE = "serve"  # the controller alone; workers come from elsewhere
    SIMULATE = "simulate"  # virtual nodes

    @property
    def local(self) -> bool:
        """Whether the run file's workers are started here, as processes."""
        return self in (Purpose.TRAIN, Purpose.LAB)


TRAIN, LAB, SERVE, SIMULATE = Purpose.TRAIN, Purpose.LAB, Purpose.SERVE, Purpose.SIMULATE
