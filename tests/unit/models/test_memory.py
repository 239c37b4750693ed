"""Memory estimates: parameters to the last one, activations against what autograd really keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from barnraise.core.errors import ModelError
from barnraise.models import memory
from barnraise.models.architectures import ARCHITECTURES
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.models.exchange.record import Exchange

torch.set_num_threads(1)
VOCAB, CONTEXT, ROWS = 64, 32, 2


def resolve(name: str, **config: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 32, "num_layers": 2, "num_heads": 4}
    return describe({"architecture": name, "config": sizes | config}, VOCAB, CONTEXT)


def kept_bytes(module: nn.Module) -> int:
    """Bytes that the forward pass keeps for the backward pass, parameters aside."""
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    ids = torch.arange(ROWS * CONTEXT).reshape(ROWS, CONTEXT) % VOCAB
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module(input_ids=ids, labels=ids, use_cache=False)
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("name", [*sorted(ARCHITECTURES), "qwen2"])
def test_estimates_against_the_real_model(name: str) -> None:
    resolved = resolve(name)
    module = build(resolved)
    assert memory.model_size(resolved) == sum(parameter.numel() for parameter in module.parameters())
    assert memory.buffer_bytes(resolved) == sum(buffer.nbytes for buffer in module.buffers())
    estimate = memory.activation_bytes(resolved, batch_size=ROWS, context=CONTEXT)
    assert 0.95 <= estimate / kept_bytes(module) <= 2.5


def test_gpt2_small_has_the_published_size() -> None:
    resolved = describe({"architecture": "gpt2"}, 50257, 1024)
    assert memory.model_size(resolved) == 124_439_808


def test_buffers_count() -> None:
    """gpt_neo keeps a mask of all pairs of positions in each layer."""
    few, many = (
        memory.worker(resolved, Exchange.of(resolved), batch_size=1, context=32).vectors
        for resolved in (resolve("gpt_neo", max_position_embeddings=positions) for positions in (1024, 65_536))
    )
    assert many - few > 2 * (65_536**2 - 1024**2)


def test_more_of_anything_needs_more() -> None:
    resolved = resolve("gpt_neo")

    def worker(**change: Any) -> int:
        return memory.worker(resolved, Exchange.of(resolved), **({"batch_size": 2, "context": 32} | change)).total

    assert worker() < worker(batch_size=4) < worker(batch_size=4, context=64)
    assert worker(inner_states=1) < worker(inner_states=2)
    assert worker(recompute=True) < worker()
    few, many = (
        memory.controller(resolved, Exchange.of(resolved), payload_bytes=k, batch_size=2, context=32).total
        for k in (2000, 8000)
    )
    assert many - few == 6000


def test_an_offloaded_optimizer_is_in_main_memory() -> None:
    resolved = resolve("gpt_neo")
    exchange, size = Exchange.of(resolved), memory.model_size(resolved)
    kept = memory.on_device(resolved, exchange, context=32)
    assert kept - memory.on_device(resolved, exchange, context=32, inner_states=0) == 2 * 4 * size
    assert memory.on_device(resolved, exchange, context=32, recompute=True) < kept
    assert memory.beside_device(exchange) == memory.HOST_VECTORS * 4 * size
    assert memory.beside_device(exchange, offload=True) - memory.beside_device(exchange) == 4 * 4 * size


def test_memory_for_a_while_counts_on_a_device_where_it_is_more_than_the_activations() -> None:
    resolved = resolve("gpt_neo")
    exchange = Exchange.of(resolved)
    needs = [memory.on_device(resolved, exchange, context=32, scratch=scratch) for scratch in (0, 1, 1 << 40)]
    activations = memory.activation_bytes(resolved, batch_size=1, context=32)
    assert needs[0] == needs[1] == needs[2] - (1 << 40) + activations


def test_a_model_too_large_is_refused_with_both_numbers() -> None:
    resolved = describe({"architecture": "llama"}, 32_000, 2048)
    needed = memory.worker(resolved, Exchange.of(resolved), batch_size=1, context=2048).total
    memory.require(2**30, 2**30, "a worker")
    with pytest.raises(ModelError, match=r"2 local workers need about \d\d\d GB of memory, but 17\.2 GB"):
        memory.require(2 * needed, 16 * 2**30, "2 local workers")


def test_this_machine_has_memory() -> None:
    assert 0 < memory.available_bytes() < 1 << 50
