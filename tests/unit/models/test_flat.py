"""One flat vector: what is computed through it is what the plain module computes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from barnraise.core.errors import ModelError
from barnraise.models.architectures import ARCHITECTURES
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.models.exchange.record import Exchange
from barnraise.models.flat import FlatParameters

torch.set_num_threads(1)
NAMES = sorted(ARCHITECTURES)
ROWS = torch.arange(32).reshape(2, 16) % 20


def tiny(name: str = "gpt_neo") -> nn.Module:
    config = {"hidden_size": 32, "num_layers": 2, "num_heads": 4}
    return build(describe({"architecture": name, "config": config}, 20, 16), seed=1)


def loss(module: nn.Module) -> torch.Tensor:
    return module(input_ids=ROWS, labels=ROWS, use_cache=False).loss


@pytest.mark.parametrize("name", NAMES)
def test_forward_and_backward_are_unchanged(name: str) -> None:
    module, reference = tiny(name), tiny(name)
    flat = FlatParameters(module)
    assert torch.equal(flat.vector, torch.cat([p.detach().flatten() for p in reference.parameters()]))
    for _ in range(2):  # gradients add up in place, and the views survive
        loss(module).backward()
        loss(reference).backward()
    assert torch.equal(flat.gradient, torch.cat([p.grad.flatten() for p in reference.parameters()]))
    flat.gradient.zero_()
    assert all(not p.grad.any() for p in module.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_into_the_vector_is_a_copy_into_the_model(name: str) -> None:
    module, other = tiny(name), build(module_config(name), seed=9)
    with torch.no_grad():
        FlatParameters(module).vector.copy_(FlatParameters(other).vector)
        assert torch.equal(loss(module), loss(other))


def module_config(name: str) -> dict[str, Any]:
    return describe({"architecture": name, "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 4}}, 20, 16)


@pytest.mark.parametrize("name", NAMES)
def test_layout_from_the_config_is_the_layout_of_the_module(name: str) -> None:
    assert Exchange.of(module_config(name)).layout == FlatParameters(tiny(name)).layout


def optimizer(kind: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1)
    return torch.optim.AdamW(parameters, lr=0.01, betas=(0.9, 0.95), weight_decay=0.1, fused=kind == "fused")


@pytest.mark.parametrize("kind", ["sgd", "adamw", "fused"])
@pytest.mark.parametrize("name", ["gpt_neo", "llama"])
def test_an_optimizer_over_the_vector_is_the_optimizer_over_the_parameters(name: str, kind: str) -> None:
    module, reference = tiny(name), tiny(name)
    flat = FlatParameters(module)
    ours, theirs = optimizer(kind, [flat.as_parameter()]), optimizer(kind, list(reference.parameters()))
    for _ in range(5):
        flat.gradient.zero_()
        loss(module).backward()
        ours.step()
        theirs.zero_grad()
        loss(reference).backward()
        theirs.step()
    expected = torch.cat([p.detach().flatten() for p in reference.parameters()])
    assert torch.allclose(flat.vector, expected, rtol=0, atol=1e-7)
    assert not torch.equal(flat.vector, torch.cat([p.detach().flatten() for p in tiny(name).parameters()]))


def test_tied_weights_are_in_the_vector_once() -> None:
    module = tiny("gpt2")
    flat = FlatParameters(module)
    assert "lm_head.weight" not in {leaf.name for leaf in flat.layout.leaves}
    assert module.lm_head.weight.data_ptr() == module.transformer.wte.weight.data_ptr()
    flat.vector.zero_()
    assert not module.lm_head.weight.any()


def test_buffers_stay_out() -> None:
    module = nn.BatchNorm1d(3)
    assert FlatParameters(module).layout.size == 6


def test_modules_that_cannot_be_flattened() -> None:
    with pytest.raises(ModelError, match=r"weight is torch\.bfloat16, but training needs float32"):
        FlatParameters(nn.Linear(2, 2).to(torch.bfloat16))
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight = nn.Parameter(module[0].weight.data)
    with pytest.raises(ModelError, match="share memory without being tied"):
        FlatParameters(module)


def test_a_copy_of_the_module_keeps_the_values() -> None:
    module = tiny()
    flat = FlatParameters(module)
    before = loss(copy.deepcopy(module))
    flat.vector.zero_()
    assert not torch.equal(before, loss(module))


def test_parameters_that_are_not_trained_stay_out() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2).to(torch.bfloat16).requires_grad_(False))
    flat, before = FlatParameters(module), module[1].weight.clone()
    assert [leaf.name for leaf in flat.layout.leaves] == ["0.weight", "0.bias"]
    flat.vector.zero_()
    assert not module[0].weight.any()
    assert torch.equal(module[1].weight, before)
