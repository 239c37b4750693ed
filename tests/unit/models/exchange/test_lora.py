"""Adapters as what travels: their layout, their values, and that a step with them is peft's own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from tests.batches import labelled

from barnraise.models.build import build, build_exchanged
from barnraise.models.config import describe
from barnraise.models.exchange.base_model import BASE_TYPES
from barnraise.models.exchange.lora_module import drawn
from barnraise.models.exchange.record import Exchange
from barnraise.models.flat import FlatParameters
from barnraise.models.memory import model_bytes, model_size
from barnraise.training.local import LocalTrainer

from ....exchanges import frozen

ARCHITECTURES = ["gpt_neo", "gpt2", "opt", "bloom", "llama", "qwen2"]
IDS = torch.arange(32).view(2, 16) % 40


def config(architecture: str = "llama") -> dict[str, Any]:
    given = {"hidden_size": 16, "num_layers": 2, "num_heads": 2}
    return describe({"architecture": architecture, "config": given}, 40, 16)


def exchange_of(folder: Path, model: dict[str, Any], kind: str = "lora", **options: Any) -> Exchange:
    """Return the exchange of adapters beside a model from seed 3, whose file is in `folder`."""
    return Exchange.of(model, frozen(build(model, 3), folder, kind, **options))


@pytest.mark.parametrize(
    "options", [{}, {"train": "b_only", "base": "bfloat16"}, {"targets": "v_proj,q_proj"}], ids=str
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_adapters_go_in_and_come_out(architecture: str, options: dict[str, Any], tmp_path: Path) -> None:
    if "targets" in options and architecture in ("gpt2", "bloom"):
        options = options | {"targets": "dense" if architecture == "bloom" else "c_attn"}
    model = config(architecture)
    exchange = exchange_of(tmp_path, model, rank=4, **options)
    module: Any = build_exchanged(model, exchange, tmp_path)
    flat = FlatParameters(module)
    assert flat.layout == exchange.layout
    side = exchange.module_exchange()
    loss = module.eval()(input_ids=IDS, labels=IDS, use_cache=False).loss
    base: Any = build(model, 3).eval()
    assert loss.item() == pytest.approx(base(input_ids=IDS, labels=IDS, use_cache=False).loss.item(), rel=1e-3)
    vector = torch.randn(exchange.exchanged)
    side.enter(module, vector)
    assert torch.equal(side.read(module), vector)
    assert module(input_ids=IDS, labels=IDS, use_cache=False).loss.item() != loss.item()


def test_only_b_travels_with_b_only(tmp_path: Path) -> None:
    both = exchange_of(tmp_path, config(), rank=4)
    half = exchange_of(tmp_path, config(), rank=4, train="b_only")
    assert {leaf.name.rsplit(".", 2)[0].rsplit(".", 1)[1] for leaf in half.layout.leaves} == {"lora_B"}
    assert half.trained < both.trained
    one, other = (build_exchanged(config(), half, tmp_path).state_dict() for _ in range(2))
    names = [name for name in one if "lora_A" in name]
    assert names
    assert all(torch.equal(one[name], other[name]) for name in names)
    assert all(one[name].abs().max() <= one[name].shape[1] ** -0.5 for name in names)
    assert len({one[name].sum().item() for name in names}) == len(names), "each adapter has values of its own"


def test_a_is_drawn_alike_on_every_machine() -> None:
    """The values are pinned: a worker with other values of A would train another model."""
    values = drawn(7, 1, (2, 4))
    assert values.dtype == torch.float32
    np.testing.assert_array_equal(values.flatten()[:3].numpy(), np.float32(PINNED))
    assert not torch.equal(values, drawn(8, 1, (2, 4)))
    assert not torch.equal(values, drawn(7, 2, (2, 4)))


PINNED = [0.38246679306030273, -0.13096171617507935, 0.017069637775421143]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_steps_are_those_of_peft_in_a_plain_loop(architecture: str, seed: int, tmp_path: Path) -> None:
    """Bit for bit in the first step; AdamW over one vector and over many rounds alike, so the others stay close."""
    model = config(architecture)
    exchange = exchange_of(tmp_path, model, rank=4, seed=seed)
    trainer = LocalTrainer(
        build_exchanged(model, exchange, tmp_path),
        optimizer="adamw",
        options={"weight_decay": 0.0, "betas": (0.9, 0.95)},
        gradient_clip=None,
    )
    start = exchange.module_exchange().read(trainer.flat.module)

    plain: Any = build(model, 3).requires_grad_(False)
    layers = "all-linear"
    wrapped: Any = get_peft_model(
        plain,
        LoraConfig(
            task_type="CAUSAL_LM", r=4, lora_alpha=32.0, target_modules=layers, fan_in_fan_out=architecture == "gpt2"
        ),
    )
    exchange.module_exchange().enter(wrapped, start)
    weights = [parameter for parameter in wrapped.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=0.01, betas=(0.9, 0.95), weight_decay=0.0)
    losses = []
    chance = torch.Generator().manual_seed(seed)
    for _ in range(12):
        ids = torch.randint(0, 40, (4, 16), generator=chance)
        found = trainer.step(labelled(ids.numpy()), 0.01)
        loss = wrapped(input_ids=ids, labels=ids, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append((found, loss.item()))
    ours, theirs = zip(*losses, strict=True)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)
    assert theirs[-1] != theirs[0]


def test_a_base_of_fewer_bits_takes_less_memory(tmp_path: Path) -> None:
    model = config()
    sizes = [model_bytes(model, exchange_of(tmp_path, model, rank=4, base=base)) for base in BASE_TYPES]
    assert sizes[0] == 4 * (model_size(model) + exchange_of(tmp_path, model, rank=4).trained)
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.parametrize("options", [{"layers": "-1"}, {"layers": "0", "embeddings": True}], ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_named_layers_travel_and_the_others_stay(architecture: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = config(architecture)
    exchange = exchange_of(tmp_path, model, kind="part", **options)
    module: Any = build_exchanged(model, exchange, tmp_path)
    assert FlatParameters(module).layout == exchange.layout
    assert 0 < exchange.trained < model_size(model)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    exchange.module_exchange().enter(module, torch.randn(exchange.exchanged))
    changed = {name for name, tensor in module.state_dict().items() if not torch.equal(tensor, before[name])}
    assert {leaf.name for leaf in exchange.layout.leaves} <= changed


def test_threads_that_build_at_the_same_time_build_the_same(tmp_path: Path) -> None:
    """A host may serve and join in one process; transformers loads for one thread at a time."""
    exchange = exchange_of(tmp_path, config("gpt_neo"), kind="part", layers="-1")
    with ThreadPoolExecutor(3) as pool:
        built = list(pool.map(lambda _: build_exchanged(config("gpt_neo"), exchange, tmp_path), range(6)))
        drawn_again = list(pool.map(lambda _: build(config(), 5), range(6)))
    for modules in (built, drawn_again):
        first, *others = [torch.cat([tensor.flatten() for tensor in one.parameters()]) for one in modules]
        assert all(torch.equal(first, other) for other in others)
