"""What a run file is about to be used for: some of it matters to one command and not to another."""

from __future__ import annotations

from enum import Enum


class Purpose(Enum):
    """The command that will use the run file."""

    TRAIN = "train"  # controller and local workers here
    SERVE = "serve"  # the controller alone; workers come from elsewhere
    SIMULATE = "simulate"  # virtual nodes


TRAIN, SERVE, SIMULATE = Purpose.TRAIN, Purpose.SERVE, Purpose.SIMULATE
