"""Check of the exported model against the checkpoint that it was made of."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from barnraise.account.account import manifest
from barnraise.assembly.exporting import tokenizer_files
from barnraise.assembly.opening import terms_of
from barnraise.core.errors import BarnraiseError, StorageError
from barnraise.ledger import StoredCheckpoint
from barnraise.ledger.tensor_files import read
from barnraise.models.exchange.record import Exchange
from barnraise.models.export import whole_model
from barnraise.verification.check import Check

_AGAIN = "write it again: barnraise export RUN_DIR"


class ModelCheck(Check):
    name = "model"
    says = "The exported model's tensors are, bit for bit, those of a checkpoint, and its tokenizer is the dataset's."

    def end(self) -> None:
        folder = self.subject.run.model
        if terms_of(self.subject.run) is not None:
            self.leave("the exported model", "its parameters are encrypted in the run directory")
            return
        if not folder.is_dir():
            self.leave("the exported model", "there is none yet")
            return
        self._tokenizer(folder)
        files = sorted(folder.glob("model*.safetensors"))
        if not files:
            self.wrong("model", "", expected="model.safetensors", found="no such file", remedy=_AGAIN)
            return
        found: dict[str, tuple[Path, Tensor]] = {}
        for path in files:
            try:
                found |= {name: (path, tensor) for name, tensor in read(path).items()}
            except (StorageError, KeyError, ValueError, RuntimeError) as error:
                name = self.subject.name_of(path)
                self.wrong(name, "", expected="tensors that can be read", found=str(error), remedy=_AGAIN)
                return
        self._tensors(found)

    def _tensors(self, found: dict[str, tuple[Path, Tensor]]) -> None:
        """Compare the tensors with the newest checkpoint, or else an older one."""
        differ: list[str] = []
        for version, checkpoint in reversed(self.subject.checkpoints.items()):
            try:
                expected = self._expected(checkpoint)
            except (BarnraiseError, KeyError, ValueError, RuntimeError):
                continue
            shared = {expected[name].data_ptr() for name in found if name in expected}
            others = [
                name for name, tensor in expected.items() if name not in found and tensor.data_ptr() not in shared
            ]
            others += [name for name, (_, tensor) in found.items() if not _same(tensor, expected.get(name))]
            if not others:
                self.figures |= {"version": version, "tensors": len(found)}
                return
            differ = differ or others
        if not differ:
            self.leave("the exported model's tensors", "no checkpoint can be read that they could be compared with")
            return
        files = {found[name][0] for name in differ if name in found} or {self.subject.run.model / "model.safetensors"}
        for path in sorted(files):
            names = [name for name in differ if name not in found or found[name][0] == path]
            told = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            self.wrong(
                self.subject.name_of(path),
                f"tensors {told}",
                expected="those of a checkpoint",
                found="others",
                remedy=_AGAIN,
            )

    def _expected(self, checkpoint: StoredCheckpoint) -> dict[str, Tensor]:
        tensors = checkpoint.tensors("parameters", ("average", "parameters"))
        told = manifest(self.subject.run)
        exchange = Exchange.of(told.model, told.exchange)
        vector = tensors.get("average", tensors["parameters"])
        return dict(whole_model(told.model, exchange, vector, self.subject.run.data).state_dict())

    def _tokenizer(self, folder: Path) -> None:
        try:
            files = tokenizer_files(self.subject.run)
        except (BarnraiseError, OSError):
            return  # the dataset's check reports it
        for name, content in files.items():
            path = folder / name
            if not path.is_file() or path.read_bytes() != content:
                self.wrong(
                    self.subject.name_of(path), "", expected=f"the bytes of data/{name}", found="others", remedy=_AGAIN
                )


def _same(one: Tensor, other: Tensor | None) -> bool:
    """Return whether two tensors are equal bit for bit."""
    if other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one.contiguous().view(torch.uint8), other.detach().contiguous().view(torch.uint8))
