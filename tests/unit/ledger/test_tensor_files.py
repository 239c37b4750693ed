"""Files of tensors: what safetensors reads, what it wrote, and what lies about itself."""

from __future__ import annotations

import contextlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from barnraise.core.errors import CorruptionError, StorageError
from barnraise.ledger.tensor_files import HEADER_LIMIT, TensorFile, content, read

TENSORS = {
    "parameters": torch.randn(1001, generator=torch.Generator().manual_seed(1)),
    "outer.steps": torch.tensor([7]),
    'a "name", \u00e4': torch.arange(12, dtype=torch.float64).reshape(3, 4),
    "none": torch.zeros(0),
    "one": torch.tensor(5.0),
    "bytes": torch.arange(7, dtype=torch.uint8),
}


def write(path: Path, tensors: dict[str, Tensor], chance: random.Random) -> None:
    """Read the file in pieces, in any order."""
    file = TensorFile(os.open(path, os.O_RDWR | os.O_CREAT), path, tensors)
    pieces = [(name, at) for name, tensor in tensors.items() for at in range(0, tensor.nbytes, 999)]
    chance.shuffle(pieces)
    for name, at in pieces:
        file.put(name, at, content(tensors[name])[at : at + 999])
        assert file.get(name, at, 5) == bytes(content(tensors[name])[at : at + 5]) or at + 5 > tensors[name].nbytes
    file.close()
    file.close()


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in expected.items()
    )


def test_safetensors_reads_what_was_written_in_pieces(tmp_path: Path) -> None:
    write(tmp_path / "file", TENSORS, random.Random(1))
    assert same(load_file(tmp_path / "file"), TENSORS)
    assert same(read(tmp_path / "file"), TENSORS)
    assert same(read(tmp_path / "file", ("one", "two")), {"one": TENSORS["one"]})


def test_files_written_by_safetensors_are_read(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "file", metadata={"format": "pt"})
    assert same(read(tmp_path / "file"), TENSORS)


def test_read_tensors_share_no_memory_with_the_file(tmp_path: Path) -> None:
    write(tmp_path / "file", TENSORS, random.Random(2))
    before = (tmp_path / "file").read_bytes()
    found = read(tmp_path / "file")["parameters"]
    (tmp_path / "file").write_bytes(b"")
    assert torch.equal(found, TENSORS["parameters"])
    found.add_(1.0)
    (tmp_path / "file").write_bytes(before)
    assert same(read(tmp_path / "file"), TENSORS)


def entry(**change: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | change


@pytest.mark.parametrize(
    "header",
    [
        {"a": entry(dtype="F16", shape=[4])},
        {"a": entry(dtype="pickle")},
        {"a": entry(shape=[2**53, 2**53])},
        {"a": entry(shape=[-1, -2])},
        {"a": entry(shape=[1] * 9, data_offsets=[0, 4])},
        {"a": entry(data_offsets=[8, 0])},
        {"a": entry(data_offsets=[4, 12])},
        {"a": entry(shape=[2**40], data_offsets=[0, 2**42])},
        {"a": entry(), "b": entry()},
        {"a": {"dtype": "F32"}},
        {"a": 5},
        [],
    ],
    ids=str,
)
def test_a_header_that_lies_is_refused_before_memory_is_taken(tmp_path: Path, header: Any) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "file").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(CorruptionError, match="file is damaged"):
        read(tmp_path / "file")


@pytest.mark.parametrize("length", [HEADER_LIMIT + 1, 100, 2**64 - 1])
def test_a_header_is_not_longer_than_its_file_or_its_limit(tmp_path: Path, length: int) -> None:
    (tmp_path / "file").write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(CorruptionError, match=f"its header cannot have {length} bytes"):
        read(tmp_path / "file")


@given(st.binary(max_size=300), st.integers(0, 300))
def test_any_bytes_are_tensors_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.unlink(missing_ok=True)
    write(path, TENSORS, random.Random(3))
    whole = path.read_bytes()
    for fuzzed in (data, whole[:at] + data + whole[at + len(data) :], whole[:at]):
        path.write_bytes(fuzzed)
        with contextlib.suppress(CorruptionError):
            read(path)


def test_a_file_that_is_not_there_is_an_error_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        read(tmp_path / "file")
