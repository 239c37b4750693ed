"""Check of checkpoints: files against their manifests, manifests and state against the ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from barnraise.controller.state import saved
from barnraise.controller.state.state import State
from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import CorruptionError, StorageError
from barnraise.ledger import Noted, StoredCheckpoint, notes
from barnraise.ledger.checkpoints import describe
from barnraise.models.vectors import bears
from barnraise.verification.check import Check
from barnraise.verification.subject import ExpectedHead, LedgerRow, Subject

_BEFORE = "put the checkpoint back from a copy; a resume passes it over, and begins at the one before"


_REPLACED = "it was replaced by a newer one meanwhile"


class CheckpointsCheck(Check):
    name = "checkpoints"
    says = (
        "Each file of a checkpoint is, byte for byte, what its manifest says, the manifest what the ledger says; its "
        "parameters bear the version's digest, and the controller's state is the one that the rows before it say."
    )

    def begin(self, subject: Subject) -> None:
        super().begin(subject)
        self._digests: dict[int, str] = {}  # version -> digest of its checkpoint's manifest
        self._good: dict[int, StoredCheckpoint] = {}
        folder = subject.run.checkpoints
        readable = {checkpoint.path for checkpoint in subject.checkpoints.values()}
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name.startswith("."):
                self.leave(subject.name_of(path), "a checkpoint that is not whole: it is being written, or never was")
            elif path not in readable:
                self._unreadable(path, {found.name.partition(".")[0] for found in readable})
        for version, checkpoint in subject.checkpoints.items():
            self._files(version, checkpoint)
            if checkpoint.manifest.head:
                name = subject.name_of(checkpoint.path / "manifest.json")
                subject.expected_heads.append(
                    ExpectedHead(name, checkpoint.manifest.ledger_id, checkpoint.manifest.head)
                )

    def _files(self, version: int, checkpoint: StoredCheckpoint) -> None:
        self.count("checkpoints")
        whole = True
        for name, stored in checkpoint.manifest.files.items():
            path = checkpoint.path / name
            try:
                found = describe(path)
            except StorageError as error:
                if self.subject.running:
                    self.leave(self.subject.name_of(checkpoint.path), _REPLACED)
                    return
                found, whole = None, False
                self.wrong(self.subject.name_of(path), "", expected="a file", found=str(error), remedy=_BEFORE)
            if found is not None and found != stored:
                whole = False
                self.wrong(
                    self.subject.name_of(path),
                    "",
                    expected=f"{stored.num_bytes:,} bytes with SHA-256 {stored.sha256}",
                    found=f"{found.num_bytes:,} bytes with SHA-256 {found.sha256}",
                    remedy=_BEFORE,
                )
        if whole:
            self._good[version] = checkpoint

    def _unreadable(self, path: Path, versions: set[str]) -> None:
        """Handle a folder without a readable manifest, or one that a newer one replaced."""
        if self.subject.running or path.name.partition(".")[0] in versions:
            self.leave(self.subject.name_of(path), _REPLACED)
        else:
            name = self.subject.name_of(path / "manifest.json")
            self.wrong(name, "", expected="a manifest that can be read", found="none", remedy=_BEFORE)

    def row(self, row: LedgerRow) -> None:
        if isinstance(row.decision, Noted) and isinstance(row.decision.note, notes.Checkpointed):
            self._digests[row.decision.note.version] = row.decision.note.digest
        for checkpoint in list(self._good.values()):
            if checkpoint.manifest.ledger_id == row.id and not self.subject.broken:
                self._look(checkpoint, self._state)

    def _look(self, checkpoint: StoredCheckpoint, at: Callable[[StoredCheckpoint], None]) -> None:
        """Look at a checkpoint that a running controller may replace at any time."""
        try:
            at(checkpoint)
        except StorageError:
            if not self.subject.running:
                raise
            del self._good[checkpoint.manifest.version]
            self.leave(self.subject.name_of(checkpoint.path), _REPLACED)

    def _state(self, checkpoint: StoredCheckpoint) -> None:
        """Compare the controller's state with that of the rows so far."""
        name = self.subject.name_of(checkpoint.path / "state.msgpack")
        kept = saved.decode(checkpoint.state())
        if kept is None:
            self.leave(name, "another version of barnraise wrote it; its bytes are as its manifest says")
            return
        state, time = kept
        folded = self.subject.history.state
        self.count("states")
        if saved.encode(state, time) == saved.encode(folded, time):
            return
        fields = State.__struct_fields__
        differ = [field for field in fields if repr(getattr(state, field)) != repr(getattr(folded, field))]
        if differ:
            self.wrong(
                name,
                ", ".join(differ),
                expected=f"the state that rows 1 to {checkpoint.manifest.ledger_id} say, as this barnraise reads them",
                found="another one",
                remedy="verify with the barnraise that made it; if it differs there too, remove the checkpoint: a "
                "resume begins at the one before",
            )

    def end(self) -> None:
        for checkpoint in list(self._good.values()):
            self._look(checkpoint, self._manifest)

    def _manifest(self, checkpoint: StoredCheckpoint) -> None:
        """Compare the manifest with the ledger, and the parameters with the manifest."""
        manifest, name = checkpoint.manifest, self.subject.name_of(checkpoint.path / "manifest.json")
        version, digests = manifest.version, self.subject.history.digests
        noted, found = self._digests.get(version), describe(checkpoint.path / "manifest.json").sha256
        if noted and noted != found:
            self.wrong(name, "", expected=f"SHA-256 {noted}", found=found, remedy=_BEFORE)
        elif version and not noted:
            self.leave(f"{name} against the ledger", "there is no digest of it on the ledger")
        if version in digests and digests[version] != manifest.parameters_digest:
            self.wrong(
                name,
                f"version {version}",
                expected=f"parameters with the digest {digests[version]}, as the ledger says",
                found=manifest.parameters_digest,
                remedy=_BEFORE,
            )
        self._parameters(checkpoint)

    def _parameters(self, checkpoint: StoredCheckpoint) -> None:
        name = self.subject.name_of(checkpoint.path / "parameters.safetensors")
        try:
            parameters = checkpoint.tensors("parameters", ("parameters",))["parameters"]
            good = bears(parameters, checkpoint.manifest.parameters_digest)
        except (CorruptionError, KeyError, ValueError, *MALFORMED) as error:
            self.wrong(name, "", expected="parameters that can be read", found=str(error), remedy=_BEFORE)
            return
        self.count("parameters")
        if not good:
            self.wrong(
                name,
                "tensor 'parameters'",
                expected=f"digest {checkpoint.manifest.parameters_digest}",
                found="another one",
                remedy=_BEFORE,
            )
