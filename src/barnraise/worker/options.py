"""The options and the outcome of a worker's process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from barnraise.core.errors import UnknownNameError
from barnraise.core.sites import OwnFiles
from barnraise.privacy.masking.member_roster import MemberRoster
from barnraise.privacy.masking.roster import TrusteeRoster
from barnraise.training.catalog import PRECISIONS
from barnraise.transport import Invite, Keys
from barnraise.transport.links.link import Link
from barnraise.worker.lending import LendingTerms, terms_of

REASON = 1000
"""Characters of a reason that are sent."""


@dataclass(frozen=True)
class Means:
    """The means of a worker on its machine, named as in `workers` entries and `join`.

    `threads` compute. `precision` is that of this worker alone, None for the run's. `slowdown` s makes each second of
    training take s + 1, `link` is emulated, and `attack` is the run file's misbehaviour (for trials; `join` has none).
    `base` is a folder with the owner's copies of the run's files, if there is one.
    The others are the owner's terms, as `lending.terms_of` reads them.
    """

    device: str = "cpu"
    threads: int = 1
    precision: str | None = None
    slowdown: float = 0.0
    link: Link | None = None
    max_memory: str = ""
    hours: float | None = None
    until: str = ""
    only: str = ""
    max_disk: str = ""
    attack: dict[str, Any] | None = None
    base: str = ""

    def __post_init__(self) -> None:
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UnknownNameError("precision", self.precision, PRECISIONS)
        self.lent()

    def lent(self) -> LendingTerms:
        """Return the owner's terms, from now on; InputError where they are malformed."""
        return terms_of(self.max_memory, self.hours, self.until, self.only, self.max_disk)


class Given(TypedDict, total=False):
    """The options of a joining machine.

    `device` is a torch device, `threads` those that compute (all cores unless given), `precision` the autocast type
    instead of the run's, and `slowdown`, for trials, seconds to idle after each second of training. `base` is a folder
    with copies of the run's base model or data, so that they need not be fetched. The others are the terms of lending,
    as `barnraise join` has them.
    """

    device: str
    threads: int
    precision: str | None
    slowdown: float
    max_memory: str
    hours: float | None
    until: str
    only: str
    max_disk: str
    base: str


@dataclass(frozen=True)
class Safeguards:
    """The parts of a run's protection that the worker's owner knows, and that no controller chooses.

    `trustees` names those that the owner accepts: it works for a run that masks updates for them alone; None: for any
    run. `key_file` has the key to an encrypted run. `members` names the nodes whose updates a trustee accepts; None:
    any.
    """

    trustees: TrusteeRoster | None = None
    key_file: str = ""
    members: MemberRoster | None = None


@dataclass(frozen=True)
class WorkerOptions:
    """The controller's address, the worker's identity, and its means.

    `uri` is one address, or two with a space between, the second for a network that blocks the first. With an `invite`
    the worker enrols first; without one its key is on the ledger already (a local worker). `former` are the keys that
    `keys` replace, if this worker is known by them. `cache` holds token shards between runs, `moments` is the file of
    the optimizer's, `replica` the folder of the model's newest version, None to keep none. `own` are the owner's
    files, for a run whose rows stay with their nodes.
    """

    uri: str
    server_key: str
    name: str
    keys: Keys = field(repr=False)
    cache: Path
    moments: Path | None = None
    replica: Path | None = None
    invite: Invite | None = field(default=None, repr=False)
    means: Means = Means()
    former: Keys | None = field(default=None, repr=False)
    own: OwnFiles | None = None
    safeguards: Safeguards = Safeguards()


@dataclass(frozen=True)
class Outcome:
    """The outcome of a worker: why it stopped, and whether it may continue.

    `final`: nothing is left to do (else the run may continue without it). `left`: its owner wanted it back, and it may
    return. `refusal` is the controller's code beside its reason (`Stop.refusal`).
    """

    reason: str
    final: bool
    left: bool = False
    refusal: str = ""
