"""The terms on which an owner lends a machine: memory and disk, duration, and kinds of work."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from barnraise.core.errors import InputError, UnknownNameError
from barnraise.core.types import KINDS, Flush, Masked, Train, name_of
from barnraise.core.units import duration_text

TRAINING = frozenset({name_of(Train), name_of(Masked), name_of(Flush)})
"""Kinds that go with training: under masks, and the submission of the residual."""

OF_WORKERS = tuple(name for name, kind in KINDS.items() if kind.replica)
"""All kinds of a worker: those of trustees read neither model nor rows."""

CHOICES = tuple(name for name, kind in KINDS.items() if kind.replica and name not in TRAINING - {name_of(Train)})
"""Kinds of work to choose from."""

MAX_DISK = "10GB"
"""Default limit of a joining machine's disk space."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_LEAST_BYTES, _MOST_BYTES = 1 << 20, 1 << 50
_LONGEST_HOURS = 24.0 * 365


@dataclass(frozen=True)
class LendingTerms:
    """The terms of a lent machine.

    `memory_bytes` that the run may take (0: all free), `seconds` for which it may stay (0: the whole run), the `kinds`
    of tasks that it may ask for, and `disk_bytes` for its files (0: no limit).
    """

    memory_bytes: int = 0
    seconds: float = 0.0
    kinds: tuple[str, ...] = OF_WORKERS
    disk_bytes: int = 0

    @property
    def over(self) -> str:
        """Return the message once the time is up."""
        return f"its owner lends the machine for {duration_text(self.seconds)}, which are over"


def terms_of(
    max_memory: str = "",
    hours: float | None = None,
    until: str = "",
    only: str = "",
    max_disk: str = "",
    now: datetime | None = None,
) -> LendingTerms:
    """Parse the terms as users write them.

    "4GB" or "512MiB", hours, a time of day as "08:00" (the next one, of this machine's clock), kinds with commas
    between. Empty or None: no limit. InputError that names the malformed one.

    >>> terms_of("4GB", until="08:00", only="train", now=datetime(2026, 1, 1, 23, 30))
    LendingTerms(memory_bytes=4000000000, seconds=30600.0, kinds=('train', 'flush', 'masked'), disk_bytes=0)
    """
    if hours is not None and until:
        raise InputError("--hours and --until both say when it ends: give one of them")
    seconds = _until(until, now or datetime.now()) if until else 0.0
    if hours is not None:
        seconds = 3600.0 * _hours(hours)
    memory, disk = _bytes("--max-memory", max_memory), _bytes("--max-disk", max_disk)
    return LendingTerms(memory, seconds, _kinds(only) if only else OF_WORKERS, disk)


def _bytes(option: str, text: str) -> int:
    if not text:
        return 0
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{option} {text!r} is no amount of bytes: write it as 4GB or 512MiB")
    number, letter, binary = found.groups()
    size = float(number) * (1024 if binary else 1000) ** _POWERS[letter.lower()]
    if not _LEAST_BYTES <= size <= _MOST_BYTES:
        raise InputError(f"{option} {text!r} is {size:,.0f} bytes, but must be from 1 MiB to 1 PiB: 4GB, for example")
    return int(size)


def _hours(hours: float) -> float:
    if not 0.0 < hours <= _LONGEST_HOURS:
        raise InputError(
            f"--hours is {hours:g}, but must be above 0 and at most {_LONGEST_HOURS:g} (a year); "
            "leave it out for no limit"
        )
    return hours


def _until(text: str, now: datetime) -> float:
    try:
        time = datetime.strptime(text, "%H:%M")
    except ValueError:
        raise InputError(f"--until {text!r} is no time of day: write it as 08:00 or 17:30") from None
    end = now.replace(hour=time.hour, minute=time.minute, second=0, microsecond=0)
    return ((end if end > now else end + timedelta(days=1)) - now).total_seconds()


def _kinds(text: str) -> tuple[str, ...]:
    wanted: Collection[str] = {name.strip() for name in text.split(",")}
    for name in sorted(wanted):
        if name not in CHOICES:
            raise UnknownNameError("kind of work", name, CHOICES)
    return tuple(name for name in KINDS if name in wanted or (name in TRAINING and name_of(Train) in wanted))
