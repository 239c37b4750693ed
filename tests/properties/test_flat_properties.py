"""Properties of the flat vector and its layout, for modules of any shape."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from barnraise.core.ranges import CHUNK
from barnraise.models.exchange.layout import Layout
from barnraise.models.exchange.record import moments_behind, sides
from barnraise.models.flat import FlatParameters

torch.set_num_threads(1)
shapes = st.lists(st.lists(st.integers(1, 4), max_size=3).map(tuple), min_size=1, max_size=6)


def module_of(shapes: list[tuple[int, ...]]) -> nn.ParameterDict:
    return nn.ParameterDict({f"p{number}": nn.Parameter(torch.randn(shape)) for number, shape in enumerate(shapes)})


@given(shapes)
def test_every_element_has_one_place(shapes: list[tuple[int, ...]]) -> None:
    module = module_of(shapes)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    flat = FlatParameters(module)
    assert flat.layout.size == sum(math.prod(shape) for shape in shapes)
    for leaf in flat.layout.leaves:
        assert torch.equal(flat.vector[leaf.place].view(leaf.shape), before[leaf.name])
    flat.vector.copy_(torch.arange(flat.layout.size))
    seen = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    assert torch.equal(seen.sort().values, torch.arange(flat.layout.size, dtype=torch.float32))


@given(shapes)
def test_leaves_follow_one_another_and_moments_start_at_a_chunk(shapes: list[tuple[int, ...]]) -> None:
    layout = Layout.of((f"p{number}", shape) for number, shape in enumerate(shapes))
    moments = moments_behind(layout)
    for one in (layout, moments):
        places = [leaf.place for leaf in one.leaves]
        assert [place.start for place in places[1:]] == [place.stop for place in places[:-1]]
        assert one.size == places[-1].stop
    assert layout.leaves[0].offset == 0
    assert moments.leaves[0].offset % CHUNK == 0
    assert 0 <= moments.leaves[0].offset - layout.size < CHUNK
    assert [leaf.name for leaf in layout.leaves] == [leaf.name for leaf in moments.leaves]
    assert [sum(sides(leaf)) for leaf in layout.leaves] == [leaf.size for leaf in moments.leaves]
