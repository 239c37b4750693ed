"""Every exception barnraise raises on purpose.

    BarnraiseError
    ├── InputError                 the user gave something that cannot work (exit code 2)
    │   ├── UnknownNameError       no such key, rule, codec, option: names the nearest known one
    │   ├── OptionError            a known option with a value that cannot work
    │   ├── RunFileError           a run file that cannot be read or cannot work
    │   ├── DataError              a dataset, text file or token shard that cannot be used
    │   │   └── DimacsError        a bad DIMACS file: file, line, reason
    │   ├── ModelError             a model that cannot be built, loaded or held in memory
    │   ├── InviteError            an invite that is malformed, expired, used up or for another run
    │   │   ├── TakenError         a name, or keys, that another machine has: come with others
    │   │   └── NotNowError        a refusal that passes by itself: ask again later
    │   ├── RunDirectoryError      a run directory that is missing, locked, unwritable or not one
    │   └── AddressError           a port that is taken, a host that cannot be bound or reached
    ├── WireError                  a frame or message that is malformed, oversize or of another protocol
    ├── PayloadError               a contribution's payload that lies about its contents
    ├── StorageError               the disk failed us: full, or a write that did not reach it
    │   └── CorruptionError        stored bytes do not match their checksum
    ├── ExportError                an exported model that does not write what the trained one writes
    ├── VersionRefusedError        a closed buffer that cannot become a version as it is
    └── RunFailedError             a run that started and could not be finished (exit code 1)
        └── SupersededError        another controller has taken the run over

A message for users names the value, the limit and a remedy, in one sentence each.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from barnraise.core.text import printable

DIVERGED = "training diverged"
"""Prefix of the reason with which a worker ends without a restart: a restart would diverge again."""


class BarnraiseError(Exception):
    """Base of every error raised on purpose; anything else that escapes is a bug."""

    exit_code = 1


class InputError(BarnraiseError):
    """The user gave something that cannot work."""

    exit_code = 2


class UnknownNameError(InputError):
    """A name that is not registered.

    >>> print(UnknownNameError("aggregation rule", "krun", ["krum", "mean"]))
    unknown aggregation rule 'krun'; did you mean 'krum'? (known: krum, mean)
    """

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        close = nearest(name, known)
        hint = f"; did you mean '{printable(close, 80)}'?" if close else ""
        told = ", ".join(printable(one, 80) for one in known) or "none"
        super().__init__(f"unknown {printable(what)} '{printable(name, 80)}'{hint} (known: {told})")
        self.name, self.suggestion = name, close


class OptionError(InputError):
    """A known option with a value that cannot work."""


class RunFileError(InputError):
    """A run file that cannot be read, does not fit the schema, or cannot work; `problems` lists what is wrong."""

    def __init__(self, message: str, problems: Iterable[object] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class DataError(InputError):
    """A dataset, text file or token shard that cannot be used."""


PROBLEM_RAISED = "the problem "
"""The beginning of a ProblemError's text, by which a controller knows it as the reason of a task that comes back."""


class ProblemError(InputError):
    """An exception in the code of a problem of a package or file of the user: its loss, its batches."""


class LimitReachedError(BarnraiseError):
    """A limit that a machine's owner set has no room for a task."""


class DimacsError(DataError):
    """A malformed DIMACS file, with file, line and reason."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        super().__init__(f"{source}:{line}: {reason}")
        self.source, self.line, self.reason = source, line, reason


class ModelError(InputError):
    """A model that cannot be built, loaded or held in memory."""


class InviteError(InputError):
    """An invite that is malformed, expired, used up or for another run."""


class NotNowError(InviteError):
    """No machine is admitted at present, with any invite: ask again later."""


class TakenError(InviteError):
    """A name or a key that another machine of the run has: use another."""


class RunDirectoryError(InputError):
    """A run directory that is missing, locked, unwritable or not one."""


class AddressError(InputError):
    """A port that is taken, a host that cannot be bound or reached."""


class WireError(BarnraiseError):
    """A frame or message that is malformed, oversize or of another protocol version."""


class PayloadError(BarnraiseError):
    """A contribution's payload that lies about its length, shape, range or scale."""


class StorageError(BarnraiseError):
    """The disk is full, read-only, or lost a write.

    `then` ends the message: the action to take once the disk works. It is kept apart because it depends on the caller.
    """

    def __init__(self, message: str, then: str = "") -> None:
        super().__init__(f"{message}, {then}" if then else message)
        self.message = message


class CorruptionError(StorageError):
    """Stored bytes do not match their checksum."""


class ExportError(BarnraiseError):
    """An exported model that does not write what the trained one writes."""


class VersionRefusedError(BarnraiseError):
    """A closed buffer that cannot become a version.

    `void` maps assignments to why their payloads cannot be decoded, `lost` to why they cannot be read. When both are
    empty, `reason` says what is wrong with the resulting numbers.
    """

    def __init__(
        self,
        version: int,
        reason: str = "",
        void: Mapping[int, str] = MappingProxyType({}),
        lost: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self.version, self.reason, self.void, self.lost = version, reason, dict(void), dict(lost)
        faults = "; ".join(f"contribution {number}: {why}" for number, why in (self.void | self.lost).items())
        super().__init__(f"version {version} cannot be made: {reason or faults}")


class RunFailedError(BarnraiseError):
    """A run that started and could not be finished."""


class SupersededError(RunFailedError):
    """Another controller of the run has taken over; this one must stop and change nothing."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to `name`, ignoring case, or None when none is close."""
    there = list(known)
    for given in (name, name.lower()):
        if matches := difflib.get_close_matches(given, there, n=1, cutoff=0.6):
            return matches[0]
    return None
