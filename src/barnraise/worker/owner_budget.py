"""The limit that an owner sets to what differential privacy spends of the rows at home, counted by the worker itself.

The controller tells the clip, the noise and the tasks. The worker refuses terms by which its noise alone would not
protect it. It counts the rows of each task before the task begins, and takes none that would spend more. The count is a
file beside the own rows. A copy of an older file would forget tasks, so it must not be restored from a backup.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import CorruptionError, InputError, StorageError
from barnraise.core.files import write_file
from barnraise.core.sites import PrivacyLimit, Releases
from barnraise.core.types import RowRange, Train
from barnraise.privacy.accounting import LEAST_NOISE, MOST_NOISE, epsilon, most_steps
from barnraise.privacy.spending import ROW, SITE, Spending
from barnraise.wire.messages import WorkerSettings
from barnraise.wire.private import Private

FILE = "privacy.json"

MOST_STEPS = 1 << 20
"""Steps that are counted at most: the epsilon of more is not computed."""


class _Record(msgspec.Struct):
    """The count on the disk, of these rows under these terms."""

    private: Private
    rows: str
    spending: Spending


class OwnerBudget:
    """The count of a worker whose owner limits what its rows may spend, which are released as `releases` says.

    `rows` is the digest of the own rows, and `folder` theirs.

    Raises InputError where the terms cannot hold the limit, and StorageError or CorruptionError for the file.
    """

    def __init__(
        self, folder: Path, limit: PrivacyLimit, settings: WorkerSettings, releases: Releases, rows: str
    ) -> None:
        self.limit, self.private = limit, _own_noise(limit, settings)
        if not self.private.rate and releases.held_out != "off":
            raise InputError(
                "the limit of --epsilon is of all rows of this machine, and the loss on those held out has no noise: "
                "give --release held_out=off"
            )
        self.most = _most_steps(self.private, limit)
        self._path, unit = folder / FILE, ROW if self.private.rate else SITE
        found = _read(self._path)
        if found is None:
            found = _Record(self.private, rows, Spending(unit))
        elif found.private != self.private:
            raise InputError(
                f"the run's noise is now {_told(self.private)}, but it was {_told(found.private)} for the tasks "
                f"counted so far, and --epsilon holds for one noise; ask the host"
            )
        elif found.rows != rows:
            changed = Spending(unit, most=found.spending.most, sites=found.spending.sites)
            changed.carried[0] = found.spending.most
            found = _Record(self.private, rows, changed)
        self._record = found

    @property
    def spent(self) -> float:
        """Return the epsilon that is spent so far of the row with the most steps, or of all rows together."""
        return epsilon(self.private.noise, self.private.rate or 1.0, self._record.spending.most, self.limit.delta)

    def begin(self, task: Train, rows: list[RowRange]) -> str:
        """Count a task on these rows, durably; return why it is not to begin, "" where it may."""
        spending, steps = self._record.spending, task.local_steps
        if spending.after("", rows, steps) > self.most:
            limit, spent = self.limit, self.spent
            return (
                f"the owner's limit of epsilon {limit.epsilon:g} at delta {limit.delta:g} has no room for the task: "
                f"{spent:.3g} is spent"
            )
        spending.assigned("", rows, steps)
        try:
            write_file(self._path, msgspec.json.encode(self._record), mode=0o600)
        except OSError as error:
            raise StorageError(f"the count of --epsilon in {self._path} cannot be written: {error}") from None
        return ""


def _own_noise(limit: PrivacyLimit, settings: WorkerSettings) -> Private:
    """Return the run's noise, which has to be this worker's own; InputError where it is not."""
    private, masks = settings.private, settings.uplink.masks
    asked = f"--epsilon {limit.epsilon:g} asks for it: ask the host, or join without --epsilon"
    if private is None:
        raise InputError(f"this run adds no noise of differential privacy, but {asked}")
    if masks is not None and masks.deviation:
        raise InputError(
            "the sites of this run share their noise, and this machine's share alone cannot hold --epsilon: ask the "
            "host for example-level privacy, or join without --epsilon"
        )
    if not LEAST_NOISE <= private.noise <= MOST_NOISE or not 0.0 <= private.rate <= 1.0 or private.clip <= 0.0:
        raise InputError(f"this run's noise is {_told(private)}, of which no epsilon is known here, but {asked}")
    return private


def _most_steps(private: Private, limit: PrivacyLimit) -> int:
    """Return the steps of a row, or the tasks of a site, that the limit has room for; InputError where it has none."""
    rate, most = private.rate or 1.0, 1
    while most < MOST_STEPS and epsilon(private.noise, rate, most, limit.delta) <= limit.epsilon:
        most *= 2
    found = most_steps(private.noise, rate, limit.epsilon, limit.delta, most)
    if not found:
        first = epsilon(private.noise, rate, 1, limit.delta)
        raise InputError(
            f"the run's noise is {_told(private)}, by which the first step spends epsilon {first:.3g}, but --epsilon "
            f"is {limit.epsilon:g}; ask the host for more noise"
        )
    return found


def _told(private: Private) -> str:
    rate = f" on batches of {private.rate:.3g} of a task's rows" if private.rate else " on each update"
    return f"{private.noise:g} times a clip of {private.clip:g}{rate}"


def _read(path: Path) -> _Record | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"the count of --epsilon in {path} cannot be read: {error}") from None
    try:
        return msgspec.json.decode(content, type=_Record)
    except MALFORMED as error:
        raise CorruptionError(
            f"the count of --epsilon in {path} is damaged ({error}): without it nobody knows what this run has spent "
            "of your rows; leave the run, or delete the file to begin again at 0"
        ) from None
