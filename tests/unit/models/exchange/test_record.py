"""An exchange: its layout, its counts, and how its vector enters a module and leaves it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from barnraise.core.errors import ModelError, OptionError, RunFailedError, UnknownNameError
from barnraise.core.types import Blob
from barnraise.models.build import build, build_exchanged, prepared
from barnraise.models.config import describe
from barnraise.models.exchange.layout import MAX_VALUES, Layout
from barnraise.models.exchange.record import Exchange
from barnraise.models.flat import FlatParameters
from barnraise.models.memory import HOST_VECTORS, controller, model_size, worker
from barnraise.wire.manifest import ExchangeName, Manifest
from barnraise.worker.terms import exchange_of

from ....exchanges import PART, frozen
from ....state_machine.engine import told

PREFIX = "transformer.h.1."


def config() -> dict[str, Any]:
    return describe({"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 2, "num_heads": 2}}, 40, 16)


@pytest.mark.parametrize("moments", [False, True])
def test_the_full_model_goes_in_and_comes_out(moments: bool, tmp_path: Path) -> None:
    exchange = Exchange.of(config(), moments=moments)
    assert exchange.trained == model_size(config())
    assert (exchange.exchanged > exchange.trained) == moments
    vector, module = torch.randn(exchange.exchanged), build_exchanged(config(), exchange, tmp_path)
    side = exchange.module_exchange()
    side.enter(module, vector)
    assert torch.equal(side.read(module), vector[: exchange.trained])
    assert torch.equal(FlatParameters(module).vector, vector[: exchange.trained])
    vector.zero_()
    assert module.transformer.wte.weight.any(), "the module has values of its own"


def test_some_parameters_go_in_and_the_others_are_those_of_the_parts(tmp_path: Path) -> None:
    base: Any = build(config(), seed=3)
    exchange = Exchange.of(config(), frozen(base, tmp_path, "part", layers="1"), moments=True)
    module: Any = build_exchanged(config(), exchange, tmp_path)
    vector = torch.randn(exchange.exchanged)
    exchange.module_exchange().enter(module, vector)
    assert {leaf.name.startswith(PREFIX) for leaf in exchange.layout.leaves} == {True}
    assert 0 < exchange.trained < model_size(config())
    flat = FlatParameters(module)
    assert flat.layout == exchange.layout
    assert torch.equal(flat.vector, vector[: exchange.trained])
    assert torch.equal(module.transformer.wte.weight, base.transformer.wte.weight)
    ids = torch.arange(16).view(2, 8)
    module(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    assert flat.gradient.any()
    assert module.transformer.wte.weight.grad is None


def test_less_of_it_takes_less_memory(tmp_path: Path) -> None:
    full, batch = Exchange.of(config()), {"batch_size": 1, "context": 16}
    some = Exchange.of(config(), frozen(build(config()), tmp_path, "part", layers="1"))
    left = model_size(config()) - some.trained
    assert (
        worker(config(), full, **batch).vectors - worker(config(), some, **batch).vectors
        == 4 * (1 + 2 + HOST_VECTORS) * left
    )
    held = [controller(config(), one, payload_bytes=0, **batch).vectors for one in (full, some)]
    assert held[0] - held[1] == 4 * 3 * left


def test_a_module_that_trains_something_else_is_refused() -> None:
    exchange = Exchange.of(config())
    module = build(config())
    module.transformer.wpe.weight.requires_grad_(False)
    with pytest.raises(ModelError, match=r"of the kind 'full' lists \(transformer.wpe.weight\)"):
        prepared(module, exchange)


def test_kinds_and_options_that_are_not_known() -> None:
    with pytest.raises(UnknownNameError, match="fulll"):
        Exchange.of(config(), ExchangeName("fulll"))
    with pytest.raises(OptionError, match="kind of exchange 'full' has no option 'rank'"):
        Exchange.of(config(), ExchangeName("full", {"rank": 3}))


@pytest.mark.parametrize("name", [ExchangeName("adapters"), ExchangeName("full", {"rank": 3})])
def test_a_worker_leaves_a_run_whose_exchange_it_does_not_know(name: ExchangeName) -> None:
    manifest = Manifest(config(), Blob("a" * 64, 7), 10, name)
    with pytest.raises(RunFailedError, match=r"exchanges what this worker cannot train.*install the version"):
        exchange_of(manifest, told())


def test_a_worker_from_before_kinds_would_see_too_few_parameters(tmp_path: Path) -> None:
    """It compares the manifest's number with the model's."""
    exchange = Exchange.of(config(), frozen(build(config()), tmp_path, "part", layers="1"))
    manifest = Manifest(config(), Blob("a" * 64, 7), exchange.trained, exchange.name)
    assert exchange_of(Manifest.decode(manifest.encode()), told()) == exchange
    assert b'"num_parameters":%d,' % exchange.trained in manifest.encode()
    assert manifest.trained != model_size(config())
    assert [part.name for part in exchange.name.frozen] == [PART]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ([], "no tensor would travel"),
        ([("a", (2,)), ("a", (3,))], "the same name"),
        ([("a", (MAX_VALUES,)), ("b", (1,))], "a layout has"),
    ],
)
def test_layouts_that_cannot_be(shapes: list[tuple[str, tuple[int, ...]]], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        Layout.of(shapes)


def test_a_module_with_nothing_to_train() -> None:
    with pytest.raises(ModelError, match="no tensor would travel"):
        FlatParameters(nn.Linear(2, 2).requires_grad_(False))
