"""Check of all files of the run directory against their descriptions: the seal, the ledger, the dataset."""

from __future__ import annotations

import hashlib
from pathlib import Path

from barnraise.account.account import MANIFEST
from barnraise.assembly.standby import MARK
from barnraise.core.errors import CorruptionError, DataError, StorageError, WireError
from barnraise.data.meta import META, Meta
from barnraise.ledger import Noted, notes, seal
from barnraise.ledger.checkpoints import StoredFile, describe
from barnraise.ledger.seal import OPEN
from barnraise.verification.check import FROM_A_COPY, Check
from barnraise.verification.subject import ExpectedHead, LedgerRow, Subject
from barnraise.wire.manifest import Manifest

_EXPORT = "write it again (barnraise export RUN_DIR), unless you exported another version there yourself"


class FilesCheck(Check):
    name = "files"
    says = "Each file is, byte for byte, what the run's seal, the ledger and the dataset's description say."

    def begin(self, subject: Subject) -> None:
        super().begin(subject)
        self._named: set[str] = set()  # files with a finding or a note
        self._rests_on: dict[str, str] = {}
        self._sealed: dict[str, StoredFile] = {}
        self._unsealed = False
        self._read_seal()
        self._compare_with_seal()
        self._dataset()

    def _read_seal(self) -> None:
        run = self.subject.run
        try:
            found = seal.read(run)
        except CorruptionError as error:
            self._wrong(run.seal.name, expected="the seal as it was written", found=str(error))
            return
        if found is None:
            self._unsealed = True
            return
        self._sealed = found.files
        self.subject.expected_heads.append(ExpectedHead(run.seal.name, found.rows, found.head))

    def _compare_with_seal(self) -> None:
        run = self.subject.run
        for name, sealed in self._sealed.items():
            path = run.path / name
            if not path.is_file():
                self._wrong(name, expected=f"a file of {sealed.num_bytes:,} bytes", found="it is missing")
                continue
            found = _prefix(path, sealed.num_bytes) if name.startswith("logs/") else describe(path)
            self.count("sealed files")
            self.count("sealed bytes", sealed.num_bytes)
            if found != sealed:
                remedy = _EXPORT if name.startswith("model/") else FROM_A_COPY
                self._wrong(name, expected=_told(sealed), found=_told(found), remedy=remedy)
        for name in seal.sealable(run):
            if self._sealed and name not in self._sealed:
                self.leave(name, "it came after the run was sealed")
        for name, what in OPEN.items():
            if (run.path / name).is_file() and name != run.seal.name:
                self.leave(name, f"it {what}", count=0)

    def _dataset(self) -> None:
        """Check the files of the dataset, whose meta.json the manifest names by its digest, and the frozen parts."""
        run = self.subject.run
        path = run.data / META
        try:
            manifest = Manifest.decode((run.path / MANIFEST).read_bytes())
            if (found := describe(path).sha256) != (named := manifest.dataset.digest):
                self._wrong(self.subject.name_of(path), expected=f"SHA-256 {named}", found=f"SHA-256 {found}")
            contents = {info.name: StoredFile(info.bytes, info.sha256) for info in Meta.read(path).contents()}
        except WireError as error:
            self._wrong(MANIFEST, expected="a manifest", found=str(error))
            return
        except (DataError, StorageError, OSError) as error:
            self._wrong(self.subject.name_of(path), expected="a dataset's description", found=str(error))
            return
        frozen = {part.name: StoredFile(part.blob.num_bytes, part.blob.digest) for part in manifest.exchange.frozen}
        for name, expected in (contents | frozen).items():
            file = run.data / name
            self.count("frozen parts" if name in frozen else "files of the dataset")
            if not file.is_file() or describe(file) != expected:
                found = _told(describe(file)) if file.is_file() else "it is missing"
                self._wrong(self.subject.name_of(file), expected=_told(expected), found=found)

    def row(self, row: LedgerRow) -> None:
        if isinstance(row.decision, Noted) and isinstance(row.decision.note, notes.RestsOn):
            self._rests_on = row.decision.note.files

    def end(self) -> None:
        run = self.subject.run
        copied = (run.path / MARK).exists()
        if self._unsealed:
            self._tell_unsealed(copied)
        if not self._rests_on:
            self.leave("run.yaml and manifest.json against the ledger", "an older barnraise kept no digests of them")
        for name, digest in self._rests_on.items():
            path = run.path / name
            if copied and path == run.run_file:
                self.leave(name, "this is a standby's copy, which has ports of its own there")
                continue
            found = describe(path).sha256 if path.is_file() else "no such file"
            self.count("files named on the ledger")
            if found != digest:
                remedy = FROM_A_COPY
                if path == run.run_file:
                    remedy = "an edit of the host's is taken in, and recorded, by `barnraise resume`; else put it back"
                self._wrong(name, expected=f"SHA-256 {digest}", found=found, remedy=remedy)

    def _tell_unsealed(self, copied: bool) -> None:
        """Report a finished run without a seal, unless this is a standby's copy of it."""
        over = self.subject.history.state.progress.finished
        if over and not copied and not self.subject.running:
            self._wrong(
                self.subject.run.seal.name,
                expected="the seal of a run that is over",
                found="no such file",
                remedy="if you noted a seal of this run, it was removed: put it back from a copy; if the run's "
                "controller ended before it sealed the folder, or was an older one, `barnraise resume` seals it",
            )
        why = "the run has no seal: it gets one when it is over"
        if over:
            why = "this is a standby's copy, which has no seal" if copied else "the run is over, but has no seal"
        self.leave(
            "files that nothing but a seal records (report, pictures, logs, keys), and the bytes of ledger.sqlite "
            "that hold no row",
            why,
            count=sum(1 for _ in seal.sealable(self.subject.run)),
        )

    def _wrong(self, name: str, *, expected: str, found: str, remedy: str = FROM_A_COPY) -> None:
        """Record a finding, once a file."""
        if name not in self._named:
            self._named.add(name)
            self.wrong(name, "", expected=expected, found=found, remedy=remedy)


def _prefix(path: Path, num_bytes: int) -> StoredFile:
    """Return a log's digest when it had `num_bytes` bytes: it may have grown."""
    with path.open("rb") as file:
        content = file.read(num_bytes)
    return StoredFile(len(content), hashlib.sha256(content).hexdigest())


def _told(file: StoredFile) -> str:
    return f"{file.num_bytes:,} bytes with SHA-256 {file.sha256}"
