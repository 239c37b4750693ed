"""Check of the payloads that are still kept: each record's checksums, and its digest on the ledger."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.ledger import Judged, Noted, VersionClosed, notes
from barnraise.ledger.copying import TERM
from barnraise.ledger.records import Damage, Place, Record, intact, read_exactly, scan
from barnraise.ledger.segments import Position
from barnraise.ledger.view import read_meta
from barnraise.verification.check import Check
from barnraise.verification.subject import LedgerRow, Subject

_LOST = "put the file back from a copy; without it the versions that it went into cannot be made again"


class PayloadsCheck(Check):
    name = "payloads"
    says = "Each payload that is kept is, byte for byte, what the ledger says its contribution brought."

    def begin(self, subject: Subject) -> None:
        super().begin(subject)
        self._digests: dict[int, str] = {}  # digests of the payloads of accepted contributions
        self._versions: dict[int, int] = {}  # contribution -> its version
        self._void: set[int] = set()
        self._all_kept = False  # controller.keep_payloads, by the ledger
        self._kept_for_good: set[int] = set()  # contributions that were accepted since
        self._epoch = 0

    def row(self, row: LedgerRow) -> None:
        decision = row.decision
        self._look_who_keeps(row)
        if isinstance(decision, Judged) and decision.brings:
            self._digests[decision.assignment] = decision.claim.digest
            if self._all_kept:
                self._kept_for_good.add(decision.assignment)
        elif isinstance(decision, VersionClosed):
            self._versions |= dict.fromkeys(decision.contributions, decision.version)
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Voided):
            self._void.add(decision.note.assignment)

    def _look_who_keeps(self, row: LedgerRow) -> None:
        """Record whether payloads are kept permanently from this row on.

        A standby that takes over has those that it needs.
        """
        epoch = int(row.columns[1])
        if epoch - self._epoch >= TERM // 2:
            self._kept_for_good.clear()
        self._epoch = epoch
        if isinstance(row.decision, Noted) and isinstance(row.decision.note, notes.RunFile):
            section = row.decision.note.content.get("controller")
            self._all_kept = isinstance(section, dict) and section.get("keep_payloads") is True
            if not self._all_kept:
                self._kept_for_good.clear()

    def walk(self, at: Callable[[ParameterServer], None]) -> None:
        """Check payloads before versions are made of them."""
        meta = read_meta(self.subject.connection, self.subject.run.ledger)
        durable = Position(meta.get("segment_number", 0), meta.get("segment_bytes", 0))
        for path in sorted(self.subject.run.segments.glob("*.seg")):
            if not path.stem.isdecimal() or int(path.stem) > durable.number:
                self.leave(self.subject.name_of(path), "the ledger knows nothing of it yet")
                continue
            try:
                self._file(path, durable)
            except FileNotFoundError:
                self.leave(self.subject.name_of(path), "it was deleted meanwhile, as checkpoints cover it")
        self._lacking()

    def _file(self, path: Path, durable: Position) -> None:
        number, name = int(path.stem), self.subject.name_of(path)
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            end = min(size, durable.offset) if number == durable.number else size
            if number == durable.number and size < durable.offset:
                self.wrong(
                    name, f"byte {size}", expected=f"{durable.offset:,} bytes", found=f"{size:,} bytes", remedy=_LOST
                )
            for found in scan(file.fileno(), number, 0, end):
                if isinstance(found, Damage):
                    self.wrong(name, f"byte {found.offset}", expected="a record", found=found.reason, remedy=_LOST)
                else:
                    self._record(name, file.fileno(), found)
        if end < size:
            self.leave(f"{name} from byte {end}", "the ledger knows nothing of it: a commit was cut short there")

    def _record(self, name: str, descriptor: int, record: Record) -> None:
        number, place = record.assignment, record.place
        where = f"bytes {place.offset} to {place.offset + place.num_bytes - 1}, the payload of contribution {number}"
        self.count("payloads")
        self.count("bytes of payloads", place.num_bytes)
        if not intact(descriptor, place):
            if number in self._void:
                why = "it is damaged, and the ledger knows: the contribution is in no version"
                self.leave(f"{name}, {where}", why, count=0)
                return
            self.wrong(name, where, expected="a payload as its checksum says", found="another one", remedy=_LOST)
            return
        digest = self._digests.get(number)
        found = hashlib.sha256(read_exactly(descriptor, place.num_bytes, place.offset)).hexdigest()
        if digest is None and not self.subject.broken:
            self.wrong(name, where, expected="a contribution that was accepted", found="none of that number")
        elif digest is not None and digest != found:
            self.wrong(name, where, expected=f"SHA-256 {digest}, as the ledger says", found=f"SHA-256 {found}")
        else:
            self.subject.payloads[number] = Place(place.number, place.offset, place.num_bytes, place.crc)

    def _lacking(self) -> None:
        """Report missing payloads that a resume would need (no checkpoint covers them), or that are always kept."""
        lacking = self._digests.keys() - self.subject.payloads.keys() - self._void
        oldest = min(self.subject.checkpoints, default=-1)
        kept = lacking & self._kept_for_good
        needed = {number for number in lacking - kept if self._versions.get(number, oldest + 1) > oldest}
        if self.subject.running:  # payloads are deleted while they are read
            kept, needed = set(), set()
        elif self.subject.history.state.progress.finished:
            needed = set()
        self._tell(sorted(kept), "payloads of all contributions: controller.keep_payloads is true")
        self._tell(sorted(needed), f"payloads of what the checkpoint of version {oldest} does not cover")
        no_more = len(lacking - kept - needed)
        self.count("payloads that are no longer kept", no_more)
        if no_more:
            self.leave("payloads that are no longer kept", "controller.keep_payloads does not ask for them", no_more)

    def _tell(self, lacking: list[int], expected: str) -> None:
        if lacking:
            told = ", ".join(map(str, lacking[:10])) + (" ..." if len(lacking) > 10 else "")
            found = f"{len(lacking):,} are missing or damaged"
            self.wrong("segments", f"contributions {told}", expected=expected, found=found, remedy=_LOST)
