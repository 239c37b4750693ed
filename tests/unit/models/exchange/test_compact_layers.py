"""Frozen layers in few bits: their values, their products and gradients, and the models that they make up."""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from barnraise.models.build import build, build_exchanged
from barnraise.models.config import describe
from barnraise.models.exchange.base_model import BASE_TYPES
from barnraise.models.exchange.compact_layers import LINEARS, NF4, CompactLinear, Nf4Linear, compacted, looked_up
from barnraise.models.exchange.record import Exchange
from barnraise.models.memory import model_bytes, widening_bytes

from ....exchanges import frozen

ARCHITECTURES = ["gpt_neo", "gpt2", "opt", "bloom", "llama", "qwen2", "gemma3_text"]
IDS = torch.arange(32).view(2, 16) % 40
SHAPES = [(1, 1), (5, 64), (7, 100), (300, 4096)]  # the last in several blocks


def values(layer: CompactLinear) -> torch.Tensor:
    """Return what the layer's matrix stands for."""
    return torch.cat([matrix.clone() for _, matrix in layer.blocks(torch.zeros(1))])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", LINEARS)
def test_products_and_gradients_are_those_of_the_values(kind: str, shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    bias = torch.randn(shape[0])
    layer = LINEARS[kind](torch.randn(shape), bias)
    plain = nn.Linear(*shape[::-1])
    plain.weight.data, plain.bias.data = values(layer), bias
    ours, theirs = (torch.randn(2, 3, shape[1], generator=torch.Generator().manual_seed(1)) for _ in range(2))
    outs = [each(x.requires_grad_()) for each, x in ((layer, ours), (plain, theirs))]
    torch.testing.assert_close(outs[0], outs[1], rtol=1e-5, atol=1e-4)
    weights = torch.randn(outs[0].shape)
    for out in outs:
        (out * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("kind", "apart"), [("bfloat16", 2.0**-8), ("int8", 0.5 / 127), ("nf4", 0.16)])
def test_values_are_as_close_as_the_bits_allow(kind: str, apart: float) -> None:
    """The widest gap between two values of nf4 is 0.304, so that a value is at most half of it away."""
    torch.manual_seed(0)
    matrix = torch.randn(16, 128)
    far = (values(LINEARS[kind](matrix, None)) - matrix).abs()
    width = 64 if kind == "nf4" else 128
    largest = matrix.view(-1, width).abs().amax(1, keepdim=True)
    assert (far.view(-1, width) <= apart * largest * (1 + 1e-6)).all()


@pytest.mark.parametrize("kind", LINEARS)
def test_a_row_of_zeros_stays_zero(kind: str) -> None:
    assert not values(LINEARS[kind](torch.zeros(2, 64), None)).any()


@pytest.mark.parametrize("inputs", [1, 63, 64, 200])
@pytest.mark.parametrize("kind", LINEARS)
def test_memory_is_as_declared(kind: str, inputs: int) -> None:
    layer = LINEARS[kind](torch.randn(10, inputs), None)
    scale = 0 if layer.scale is None else layer.scale.nbytes
    assert layer.weight.nbytes + scale == 10 * BASE_TYPES[kind].row_bytes(inputs)


def test_a_devices_operations_find_the_values_of_a_cpu() -> None:
    layer, codes = Nf4Linear(torch.zeros(2, 256), None), torch.arange(256, dtype=torch.uint8).view(2, 128)
    layer.weight.data, layer.scale = codes.view(torch.int8), torch.ones(2, 4)
    assert torch.equal(looked_up(codes, layer.pairs), values(layer))


def test_the_values_of_nf4_are_quantiles_of_the_normal_distribution() -> None:
    """Dettmers et al. 2023, appendix E: eight of one half and nine of the other, which share 0, scaled to 1."""
    normal, end = NormalDist(), 0.9677083
    upper = [normal.inv_cdf(share) for share in np.linspace(end, 0.5, 9)[:-1]]
    lower = [-normal.inv_cdf(share) for share in np.linspace(end, 0.5, 8)[:-1]]
    found = np.array(sorted([*upper, 0.0, *lower])) / max(upper)
    np.testing.assert_allclose(found, NF4, atol=1e-6)


@pytest.mark.parametrize("base", LINEARS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_model_with_a_compact_base_has_nearly_the_same_loss(architecture: str, base: str, tmp_path: Path) -> None:
    given = {"hidden_size": 64, "num_layers": 2, "num_heads": 2}
    model = describe({"architecture": architecture, "config": given}, 40, 16)
    plain: Any = build(model, 3).eval()
    exchange = Exchange.of(model, frozen(plain, tmp_path, "lora", rank=4, base=base))
    module: Any = build_exchanged(model, exchange, tmp_path).eval()
    out = module(input_ids=IDS, labels=IDS, use_cache=False)
    assert out.logits.dtype == torch.float32
    expected = plain(input_ids=IDS, labels=IDS, use_cache=False).loss.item()
    assert out.loss.item() == pytest.approx(expected, rel=2e-2 if base == "nf4" else 2e-3)
    out.loss.backward()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in trained)
    assert not any(isinstance(layer, Conv1D) for layer in module.modules())
    held = sum(tensor.nbytes for tensor in module.parameters())
    held += sum(
        layer.scale.nbytes for layer in module.modules() if isinstance(layer, CompactLinear) and layer.scale is not None
    )
    assert held == model_bytes(model, exchange)
    compact = [layer for layer in module.modules() if type(layer) is LINEARS[base]]
    largest = max(layer.in_features * layer.out_features for layer in compact) if base != "bfloat16" else 0
    assert widening_bytes(model, exchange) == BASE_TYPES[base].widening * largest


def test_autocast_computes_in_its_own_type() -> None:
    layer = LINEARS["int8"](torch.randn(8, 64), torch.randn(8))
    x = torch.randn(3, 64, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32


@pytest.mark.parametrize("kind", LINEARS)
def test_a_layer_is_compiled_in_one_piece(kind: str) -> None:
    torch.manual_seed(0)
    layer = LINEARS[kind](torch.randn(8, 100), torch.randn(8))
    found, expected = (torch.randn(3, 100, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    torch.compile(layer, backend="eager", fullgraph=True)(found.requires_grad_()).sum().backward()
    layer(expected.requires_grad_()).sum().backward()
    torch.testing.assert_close(found.grad, expected.grad)
    torch._dynamo.reset()


@pytest.mark.parametrize("base", LINEARS)
def test_a_t5_keeps_its_values_and_its_gradient(base: str) -> None:
    """Its layers cast activations to the type of their weights, but for int8."""
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    shape = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    module: Any = T5ForConditionalGeneration(T5Config(vocab_size=40, **shape)).eval()
    ids = {"input_ids": IDS, "decoder_input_ids": IDS[:, :5]}
    expected = module(**ids).logits.detach()
    packed: Any = compacted(module.requires_grad_(False), base)
    far = (packed(**ids).logits - expected).norm() / expected.norm()
    assert far < (0.15 if base == "nf4" else 0.02)
    x = torch.randn(2, 3, 64, requires_grad=True)
    packed.encoder.block[0].layer[1].DenseReluDense(x).sum().backward()
    assert x.grad is not None
    assert x.grad.any()
