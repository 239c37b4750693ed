"""A trustee's process: it answers lists of masked updates, and needs neither model nor rows.

It keeps in its folder what it signed, and the first signing key of each member. Updates that are signed with another
key later are refused: the host could pass off updates of its own as that member's. Where its owner gave a list of
members, it refuses the updates of others: the host could invent members.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from zmq.utils import z85

from barnraise.core.errors import InputError, PayloadError, ProblemError
from barnraise.core.files import write_file
from barnraise.core.ranges import numbers_in
from barnraise.core.threads import finished
from barnraise.core.types import (
    KINDS,
    Blob,
    Confirm,
    Confirmed,
    Endorse,
    Endorsed,
    NodeProfile,
    Unmask,
    Unmasked,
    Vet,
    Vetted,
)
from barnraise.core.units import count_text
from barnraise.privacy.masking.committee import Committee, TrusteeKeys
from barnraise.privacy.masking.journal import TrusteeJournal
from barnraise.privacy.masking.lists import MemberList, decode_list
from barnraise.privacy.masking.member_roster import MemberRoster
from barnraise.privacy.masking.ring import Ring
from barnraise.privacy.masking.roster import line_of
from barnraise.privacy.masking.sealing import SealingKey
from barnraise.privacy.masking.seats import committee_of
from barnraise.privacy.masking.sums import expanded
from barnraise.privacy.masking.terms import MaskTerms
from barnraise.privacy.masking.trustee import Endorsement, ListRefused, TrusteeMachine, TrusteeSettings
from barnraise.transport import Keys
from barnraise.transport.identity import hexadecimal
from barnraise.trust.roles import TRUSTEE, tasks_of
from barnraise.trust.signatures import RunId
from barnraise.wire.messages import Masks, Welcome, WorkerSettings
from barnraise.worker.events import Prepared
from barnraise.worker.kept import Kept
from barnraise.worker.machine import MakeWorker, Worker
from barnraise.worker.preparing import Prepare, Ready, Shell, prepare
from barnraise.worker.task_executor import TaskExecutor

ROSTER = "roster.json"
MOST_FAULTS = 100


@dataclass(frozen=True)
class SentSums:
    """Sums of masks and their name, kept until the controller answers."""

    blob: Blob
    data: memoryview


class KeyRoster:
    """The signing keys of members by their nodes: those that the owner `listed`, or as first seen, in a file.

    `path` is that file.
    """

    def __init__(self, path: Path, listed: MemberRoster | None = None) -> None:
        self._path, self._learns = path, listed is None
        self.keys: dict[str, str] = {}
        if listed is not None:
            self.keys.update(listed.keys)
        elif path.exists():
            try:
                self.keys = dict(json.loads(path.read_text("utf-8")))
            except (ValueError, OSError) as error:
                raise InputError(f"the roster {path} cannot be read ({error}); restore it from a copy") from None

    def learn(self, given: Mapping[str, str]) -> None:
        """Add keys of unknown members; those of known ones stay, so that entries under others are refused.

        A list of its owner stays as it is.
        """
        if self._learns and given.keys() - self.keys.keys():
            self.keys |= {node: key for node, key in given.items() if node not in self.keys}
            write_file(self._path, json.dumps(self.keys, indent=1).encode())


class TrusteeExecutor:
    """Carries out a trustee's tasks, one at a time.

    `folder` has its journal and its roster; `members` are those that its owner listed, None: any.
    """

    def __init__(
        self, run: RunId, name: str, keys: Keys, masks: Masks, folder: Path, members: MemberRoster | None = None
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._run, self._name, self._keys, self._masks = run, name, keys, masks
        self._ring = Ring(masks.value_bits, masks.most_members, masks.limit, masks.deviation)
        self._journal, self._roster = TrusteeJournal(folder), KeyRoster(folder / ROSTER, members)
        self._machine: tuple[str, TrusteeMachine] | None = None  # by the digest of its committee
        self.payloads: dict[int, SentSums] = {}
        self.cut, self.leaving = threading.Event(), threading.Event()
        self.busy = time.monotonic

    def vet(self, task: Vet) -> Vetted:
        """Tell which entries of a list are refused, before it is fixed."""
        began = time.monotonic()
        try:
            answer = self._with(task).vet(decode_list(task.members), task.shares)
        except (PayloadError, InputError) as error:
            answer = ListRefused(str(error))
        told = partial(Vetted, reason=told_of(answer), faulty=_accused(answer), unlisted=tuple(sorted(answer.unlisted)))
        return told(assignment=task.id, base=task.base, steps=0, loss=0.0, seconds=time.monotonic() - began)

    def endorse(self, task: Endorse) -> Endorsed:
        """Sign the list's digest, or say why not."""
        began = time.monotonic()
        told = partial(Endorsed, assignment=task.id, base=task.base, steps=0, loss=0.0)
        try:
            answer = self._with(task).endorse(decode_list(task.members), task.shares)
        except (PayloadError, InputError) as error:
            answer = ListRefused(str(error))
        seconds = time.monotonic() - began
        if isinstance(answer, Endorsement):
            return told(seconds=seconds, endorsement=answer.signature)
        return told(seconds=seconds, reason=told_of(answer), faulty=_accused(answer)[:MOST_FAULTS])

    def confirm(self, task: Confirm) -> Confirmed:
        """Compute sums of masks, and tell their digest."""
        began = time.monotonic()
        told = partial(Confirmed, assignment=task.id, base=task.base, steps=0, loss=0.0)
        try:
            content = self._sums(task)
        except PayloadError as error:
            return told(seconds=time.monotonic() - began, reason=str(error)[:1000])
        return told(seconds=time.monotonic() - began, digest=hashlib.sha256(content).hexdigest())

    def unmask(self, task: Unmask) -> Unmasked:
        """Compute sums of masks, to be sent; ProblemError, with the reason, where it gives none."""
        began = time.monotonic()
        try:
            content = self._sums(task)
        except PayloadError as error:
            raise ProblemError(str(error)[:1000]) from None
        blob = Blob(hashlib.sha256(content).hexdigest(), len(content))
        self.payloads[task.id] = SentSums(blob, memoryview(content))
        seconds = time.monotonic() - began
        return Unmasked(assignment=task.id, base=task.base, steps=0, loss=0.0, seconds=seconds, payload=blob)

    def _sums(self, task: Confirm | Unmask) -> bytes:
        """Return the sums of the masks of the task's seeds, group by group.

        PayloadError where the list is not one to release.
        """
        machine, members = self._with(task), decode_list(task.members)
        names = (seat.node for seat in task.committee)
        signed = dict(zip(names, task.endorsements, strict=False))
        given = machine.give(members, task.shares, signed, [tuple(numbers_in(task.seeds))])
        if isinstance(given, ListRefused):
            raise PayloadError(told_of(given))
        return b"".join(part for portion in expanded(given) for part in portion)

    def _with(self, task: Vet | Endorse | Confirm | Unmask) -> TrusteeMachine:
        """Return the machine for the task's committee; PayloadError where the task cannot be for this trustee."""
        try:
            committee = committee_of(task.committee, self._masks.colluding)
        except InputError as error:
            raise PayloadError(str(error)) from None
        self._roster.learn(_signers(decode_list(task.members), task.signers))
        if self._machine is None or self._machine[0] != committee.digest:
            self._machine = committee.digest, self._made(committee)
        return self._machine[1]

    def _made(self, committee: Committee) -> TrusteeMachine:
        sealing, number = SealingKey(z85.decode(self._keys.secret)), committee.number(self._name)
        if number is None or committee.trustees[number].sealing != sealing.public:
            raise PayloadError(f"the committee has no seat of '{self._name}' with this machine's key")
        settings = TrusteeSettings(
            number=number,
            signer=self._keys.signer,
            sealing=sealing,
            terms=MaskTerms(self._run, self._ring, self._masks.size, committee),
            roster=self._roster.keys,
            least_members=self._masks.least,
        )
        decisions = self._journal.decisions
        return TrusteeMachine(settings, self._record, decisions)

    def _record(self, decision: Any) -> None:
        self._journal.record(decision)
        self._journal.decisions.append(decision)

    def settle(self, assignment: int, accepted: bool) -> Future[None]:
        """Drop the sums, which the controller has answered."""
        self.payloads.pop(assignment, None)
        return finished(None)

    def encode_on(self, pool: Executor) -> None:
        """Do nothing: there is nothing to encode."""

    @property
    def overhead(self) -> float:
        """Return 0: it trains nothing that protections could slow."""
        return 0.0

    def newly_skipped(self) -> tuple[int, str]:
        """Return 0: there are no steps to skip."""
        return 0, ""


def told_of(refused: ListRefused) -> str:
    """Return the reason of a refusal, with the first fault that it names."""
    faults = [f"assignment {number}: {why}" for number, why in refused.faults.items()]
    return "; ".join(part for part in (refused.reason, *faults[:1]) if part)[:1000]


def _accused(refused: ListRefused) -> tuple[int, ...]:
    """Return the refused assignments but for those of nodes that are merely not on the roster."""
    return tuple(sorted(refused.faults.keys() - refused.unlisted))


def _signers(members: MemberList, signers: tuple[str, ...]) -> dict[str, str]:
    """Return the signing keys of a list's members; PayloadError where there are more or fewer."""
    if len(signers) != len(members.entries):
        raise PayloadError(f"{len(signers)} signing keys for {len(members.entries)} entries")
    return {entry.node: key for entry, key in zip(members.entries, signers, strict=True)}


def machine_of(role: str, usual: MakeWorker) -> MakeWorker:
    """Return the factory of a process's state machine: the usual one, or for a trustee one with its kinds of tasks."""
    if role != TRUSTEE:
        return usual
    return lambda session, profile, kinds: Worker(session, profile, tuple(sorted(tasks_of(role, KINDS))))


def preparation(role: str, folder: Path) -> Prepare:
    """Return the steps from a welcome to the first task for this role; a trustee's files are in `folder`."""
    return partial(_prepare, folder) if role == TRUSTEE else prepare


async def _prepare(
    folder: Path, shell: Shell, settings: WorkerSettings, welcome: Welcome, profile: NodeProfile
) -> Ready:
    """Prepare a trustee: it needs the settings of masks, and nothing else of the run."""
    masks, options = settings.uplink.masks, shell.options
    if masks is None:
        raise InputError("this run masks no updates, so it needs no trustees; ask the host for another invite")
    run, members = RunId(welcome.run, options.server_key), options.safeguards.members
    if members is not None:
        members.require(masks.least)
        shell.say(
            f"accepts updates of the {count_text(len(members.keys), 'member')} in {members.source}, and of no others"
        )
    own = TrusteeKeys(welcome.node, options.keys.signer.public, hexadecimal(options.keys.public))
    told = "give the owners of workers this line for their rosters (join --trustees FILE), with your name for OWNER"
    shell.say(f"{told}: {line_of(own, 'OWNER')}")
    make: Callable[[], TrusteeExecutor] = partial(
        TrusteeExecutor, run, welcome.node, options.keys, masks, folder, members=members
    )
    executor = cast("TaskExecutor", await shell.in_training(make))
    return Ready(executor, Kept(executor, None, None), Prepared((), profile))
