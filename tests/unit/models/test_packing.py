"""Models that are told whether rows are packed give the same logits as those that find out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.models.packing import rows_packed

SHAPE = {"hidden_size": 16, "num_layers": 2, "num_heads": 2}


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "qwen2"])
@pytest.mark.parametrize("positions", [None, [0, 1, 2, 3, 0, 1, 2, 0], [0, 1, 2, 3, 4, 5, 6, 7]])
def test_told_and_found_masks_are_the_same(architecture: str, positions: list[int] | None) -> None:
    module = build(describe({"architecture": architecture, "config": SHAPE}, 40, 8), 0).eval()
    inputs = {"input_ids": torch.arange(16).view(2, 8)}
    if positions is not None:
        inputs["position_ids"] = torch.tensor([positions, positions])
    found = module(**inputs, use_cache=False).logits
    with rows_packed(positions is not None):
        told = module(**inputs, use_cache=False).logits
    torch.testing.assert_close(told, found)
    if positions is not None and positions[4] == 0:
        with rows_packed(False):
            apart = module(**inputs, use_cache=False).logits
        assert not torch.allclose(apart, found), "examples of one row must not see each other"


@pytest.mark.parametrize("packed", [False, True])
def test_a_compiled_model_makes_masks_of_packed_rows_alone(packed: bool) -> None:
    graphs = list[Any]()

    def keep(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    module = build(describe({"architecture": "llama", "config": SHAPE}, 40, 8), 0).eval()
    inputs = {"input_ids": torch.arange(16).view(2, 8)}
    if packed:
        inputs["position_ids"] = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0]] * 2)
    with rows_packed(packed):
        expected = module(**inputs, use_cache=False).logits
        module.compile(backend=keep)
        found = module(**inputs, use_cache=False).logits
    torch.testing.assert_close(found, expected)
    assert any("cumsum" in str(node.target) for graph in graphs for node in graph.graph.nodes) == packed
    torch._dynamo.reset()
