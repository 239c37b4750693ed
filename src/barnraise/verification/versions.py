"""Check of the versions, made again from the payloads, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from barnraise.account.account import manifest
from barnraise.assembly import parts
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.core.errors import BarnraiseError, StorageError, VersionRefusedError
from barnraise.ledger import StoredCheckpoint
from barnraise.ledger.tensor_files import content
from barnraise.models.vectors import bears
from barnraise.verification.check import Check

_DELETED = "payloads of contributions to them are not kept: checkpoints cover them (controller.keep_payloads keeps all)"


class VersionsCheck(Check):
    """Recomputes versions from version 0 or a checkpoint, until a payload is missing.

    It begins with version 0, initialised again, where its payloads are there, and at each checkpoint where they are
    not. At most `most` versions are made.
    """

    name = "versions"
    says = (
        "Each version is, bit for bit, what the payloads of its contributions make of the one before, and so are the "
        "optimizer's moments, the residual and the average in each checkpoint on the way."
    )

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self._most = most
        self._left: list[tuple[int, str]] = []  # versions that were not made again, and why

    def walk(self, at: Callable[[ParameterServer], None]) -> None:
        subject = self.subject
        if subject.broken:
            self.leave("the chain of versions", subject.broken, max(1, subject.history.state.newest.version))
            return
        if not subject.history.digests:
            self.leave("the chain of versions", "the run has not begun")
            return
        try:
            torch.set_num_threads(subject.plan.run_file.controller.threads)
            told = manifest(subject.run)
            self._model, self._exchange = told.model, subject.plan.exchange(told.model, told.exchange)
            self._server = parts.parameter_server(subject.plan, torch.zeros(1), self._exchange)
        except BarnraiseError as error:
            why = f"the run file does not say how they are made: {error}"
            self.leave("the chain of versions", why, max(1, subject.history.state.newest.version))
            return
        self._good = False  # whether the server is at a version with the right digest
        self.figures |= {"versions": subject.history.state.newest.version, "made again": 0}
        for version in range(subject.history.state.newest.version + 1):
            self._reach(version)
            if self._good:
                at(self._server)
        del self._server  # others may need its memory
        self._tell_left()

    def _reach(self, version: int) -> None:
        if version:
            self._make(version)
        checkpoint = self.subject.checkpoints.get(version)
        if checkpoint is not None:
            self._meet(checkpoint)
        elif not version and self._lacking(1) is None:
            self._draw()

    def _make(self, version: int) -> None:
        """Make a version from the one before, if the server is there and its payloads are here."""
        history, made = self.subject.history, self.figures["made again"]
        enough = self._most is not None and made >= self._most
        why = f"{made:,} were asked for" if enough else self._lacking(version)
        if why is None and not self._good:
            why = "the version before, from which it would be made, is not kept"
        if why is not None:
            self._good = False
            self._left.append((version, why))
            return
        try:
            given = history.slots[version], self.subject.payload, *history.rates[version]
            self._server.aggregate(version, *given, masks=history.masks.get(version, ()))
        except VersionRefusedError as error:
            self._differs(version, f"it cannot be made: {error}")
            return
        except StorageError:
            if not self.subject.running:
                raise
            self._good = False
            self._left.append((version, "the payloads were deleted meanwhile, as checkpoints cover them"))
            return
        if not bears(self._server.parameters, history.digests[version]):
            self._differs(version, f"made again it has {self._server.digest}")
            return
        self.count("made again")

    def _differs(self, version: int, found: str) -> None:
        self._good = False
        self.wrong(
            "ledger.sqlite",
            f"version {version}",
            expected=f"digest {self.subject.history.digests[version]}",
            found=found,
            remedy="verify on the machine that made it, with the same barnraise and torch; if it differs there, the "
            "directory was altered",
        )

    def _lacking(self, version: int) -> str | None:
        """Return why the version cannot be made of the kept payloads; None when it can."""
        slots = self.subject.history.slots.get(version)
        if slots is None or version not in self.subject.history.digests:
            return "it was not made before the run stopped"
        numbers = {held.assignment for slot in slots for held in slot.contributions}
        numbers.update(self.subject.history.masks.get(version, ()))
        return None if self.subject.payloads.keys() >= numbers else _DELETED

    def _meet(self, checkpoint: StoredCheckpoint) -> None:
        """Compare with a checkpoint, or restart there."""
        version, name = checkpoint.manifest.version, self.subject.name_of(checkpoint.path / "parameters.safetensors")
        try:
            tensors = checkpoint.tensors("parameters")
            if not bears(tensors["parameters"], self.subject.history.digests[version]):
                return  # the checkpoints' check reports it
        except (BarnraiseError, KeyError, ValueError):
            return
        if not self._good:
            self._server.load(tensors, version)
            self._good = True
            return
        self.count("checkpoints compared")
        for tensor, made in self._server.state().items():
            if tensor in tensors and not _equal(made, tensors[tensor]):
                self.wrong(
                    name,
                    f"tensor '{tensor}'",
                    expected=f"the tensors of version {version}, made again",
                    found="others",
                    remedy="remove this checkpoint: a resume begins at the one before",
                )

    def _draw(self) -> None:
        """Make version 0 from the run file."""
        try:
            state = parts.initial_state(self.subject.plan, self._model, self._exchange, self.subject.run.data)
        except BarnraiseError as error:
            self.leave("version 0", f"the model that the run began with cannot be made again here: {error}")
            return
        if not bears(state["parameters"], self.subject.history.digests[0]):
            self.leave("version 0", "drawn here from the run file's seed it is another one, as with another torch")
            return
        self._server.load(state, 0)
        self._good = True
        self.count("drawn again")

    def _tell_left(self) -> None:
        """Report the ranges of versions that were not made again."""
        starts = [0] + [
            place
            for place, ((before, why), (version, other)) in enumerate(pairwise(self._left), 1)
            if version != before + 1 or why != other
        ]
        for start, stop in pairwise([*starts, len(self._left)]):
            if start < stop:
                first, last = self._left[start][0], self._left[stop - 1][0]
                what = f"version {first}" if first == last else f"versions {first} to {last}"
                self.leave(what, self._left[start][1], stop - start)


def _equal(one: Tensor, other: Tensor) -> bool:
    return np.array_equal(np.frombuffer(content(one), np.uint8), np.frombuffer(content(other), np.uint8))
