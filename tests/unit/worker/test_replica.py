"""Vectors of a worker are float32 while another thread loads a model, which changes torch's default type."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from barnraise import compression
from barnraise.training.transfers import host_vector
from barnraise.worker.replica import Replica
from barnraise.worker.update_path import UpdatePath


@pytest.fixture
def loading() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # as transformers does while it loads a base in bfloat16
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("loading")
def test_vectors_that_are_made_while_a_base_is_loaded_are_float32() -> None:
    codec = compression.create("sparse_loco")
    replica = Replica(8, codec, follows=True)
    made = [replica.parameters, host_vector(8, torch.device("cpu"))]
    assert {vector.dtype for vector in made} == {torch.float32}
    sent = UpdatePath(codec, error_feedback=True, decay=1.0, update_clip=None).flush(8)
    assert sent.encoded.num_bytes == len(sent.encoded.payload)
    assert codec.decode(sent.encoded, 8).dtype == torch.float32
