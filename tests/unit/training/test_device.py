"""The means of a device: the same steps with recomputed activations and compiled kernels, and errors with a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from barnraise.core.errors import ModelError
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.training.device import (
    compile_layers,
    has_bfloat16,
    recompute_activations,
    usable_precision,
    use_fast_products,
    why_not_compiled,
)
from barnraise.training.local import LocalTrainer

OPTIONS = {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.01}
TOKENS = np.random.default_rng(0).integers(0, 11, (4, 16))
BATCH = {"input_ids": TOKENS, "labels": TOKENS}


def gpt2() -> nn.Module:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=3, n_head=2, vocab_size=11, n_positions=16))  # with dropout


def llama() -> nn.Module:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=16, num_hidden_layers=3, num_attention_heads=2, vocab_size=11, intermediate_size=32,
            max_position_embeddings=16,
        )
    )  # fmt: skip


def trainer(module: nn.Module, *, compiled: bool = False) -> LocalTrainer:
    return LocalTrainer(module, optimizer="adamw", options=OPTIONS, gradient_clip=1.0, compiled=compiled)


def kept_bytes(module: nn.Module) -> int:
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module.train()(input_ids=torch.from_numpy(TOKENS), use_cache=False)
    return sum(kept.values())


@pytest.mark.parametrize("make", [gpt2, llama])
def test_recomputed_activations_give_the_same_steps_from_less_memory(make: type[nn.Module]) -> None:
    plain, module = trainer(make()), make()
    before = kept_bytes(module)
    recompute_activations(module)
    assert kept_bytes(module) < 0.5 * before
    other = trainer(module)
    for number in range(3):
        for one in (plain, other):
            torch.manual_seed(number)  # dropout is repeated
            assert one.step(BATCH, 0.01) is not None
    assert torch.equal(other.flat.vector, plain.flat.vector)


def test_a_model_that_cannot_recompute_activations_is_named() -> None:
    with pytest.raises(
        ModelError, match=r"Linear cannot recompute activations; leave training\.checkpoint_activations"
    ):
        recompute_activations(nn.Linear(2, 2))


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "qwen2", "opt", "bert", "t5"])
def test_attention_is_fused_where_the_model_has_it(architecture: str) -> None:
    shape = {"hidden_size": 16, "num_layers": 1, "num_heads": 2}
    config: Any = build(describe({"architecture": architecture, "config": shape}, 40, 16), 0).config
    assert config._attn_implementation == "sdpa"


def test_accelerators_multiply_in_tf32_and_cpus_do_not() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        use_fast_products(torch.device("cpu"))
        assert torch.get_float32_matmul_precision() == before
        use_fast_products(torch.device("cuda"))
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before)


def test_auto_is_float32_on_cpus() -> None:
    cpu = torch.device("cpu")
    assert usable_precision("auto", cpu) == "float32"
    assert usable_precision("bfloat16", cpu) == "bfloat16"


def test_bfloat16_where_the_device_has_none_is_refused() -> None:
    device = torch.device("mps")
    assert not has_bfloat16(device)
    assert usable_precision("auto", device) == "float32"
    with pytest.raises(ModelError, match=r"'mps' has no bfloat16, but .* join with --precision float32"):
        usable_precision("bfloat16", device)


def test_without_a_compiler_the_model_is_trained_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    found = trainer(gpt2(), compiled=True)
    (remark,) = found.remarks
    assert remark == "training.compile: the model is not compiled, since there is no C++ compiler (g++, clang++, c++)"
    assert not found.compiled
    assert found.step(BATCH, 0.01) is not None


@pytest.mark.campaign
def test_a_compiler_that_fails_does_not_end_a_task() -> None:
    found, plain = trainer(llama(), compiled=True), trainer(llama())
    assert found.compiled

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("C++ compile error\nmore")

    found.compiled[1]._compiled_call_impl = fails
    with pytest.warns(UserWarning, match=r"the model is not compiled, since that failed: C\+\+ compile error$"):
        loss = found.step(BATCH, 0.01)
    assert loss == plain.step(BATCH, 0.01)
    assert torch.equal(found.flat.vector, plain.flat.vector)
    assert not found.compiled


def test_layers_that_repeat_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = list[Any]()

    def keep(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    whole = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda module: whole(module, backend=keep))
    found, plain = trainer(llama(), compiled=True), trainer(llama())
    assert [type(layer).__name__ for layer in found.compiled] == 3 * ["LlamaDecoderLayer"]
    for _ in range(2):
        assert found.step(BATCH, 0.01) == pytest.approx(plain.step(BATCH, 0.01), rel=1e-4)
    assert len(graphs) == 1
    torch._dynamo.reset()


def test_a_model_without_layers_that_repeat_is_compiled_as_a_whole() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert compile_layers(module) == [module]


@pytest.mark.campaign
def test_a_compiled_model_takes_the_same_steps_but_for_rounding() -> None:
    if why_not_compiled(torch.device("cpu")):
        pytest.skip("no C++ compiler")
    found, plain = trainer(llama(), compiled=True), trainer(llama())
    for _ in range(3):
        assert found.step(BATCH, 0.01) == pytest.approx(plain.step(BATCH, 0.01), rel=1e-4)
    assert found.compiled
    torch.testing.assert_close(found.flat.vector, plain.flat.vector, rtol=1e-3, atol=1e-4)
