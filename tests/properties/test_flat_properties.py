"""Properties of the flat vector and its layout, for modules of any shape."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from barnraise.models.flat import FlatParameters, named_views
from barnraise.models.layout import FlatLayout

torch.set_num_threads(1)
shapes = st.lists(st.lists(st.integers(1, 4), max_size=3).map(tuple), min_size=1, max_size=6)


def module_of(shapes: list[tuple[int, ...]]) -> nn.ParameterDict:
    return nn.ParameterDict({f"p{number}": nn.Parameter(torch.randn(shape)) for number, shape in enumerate(shapes)})


@given(shapes)
def test_every_element_has_one_place(shapes: list[tuple[int, ...]]) -> None:
    module = module_of(shapes)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    flat = FlatParameters(module)
    assert flat.num_parameters == flat.layout.total == sum(math.prod(shape) for shape in shapes)
    assert all(torch.equal(view, before[name]) for name, view in named_views(flat.vector, flat.layout).items())
    flat.vector.copy_(torch.arange(flat.num_parameters))
    seen = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    assert torch.equal(seen.sort().values, torch.arange(flat.num_parameters, dtype=torch.float32))


@given(shapes)
def test_layouts_survive_the_wire(shapes: list[tuple[int, ...]]) -> None:
    layout = FlatLayout.of((f"p{number}", shape) for number, shape in enumerate(shapes))
    again = FlatLayout.decode(layout.encode())
    assert again == layout
    assert again.digest() == layout.digest()


@given(shapes, shapes)
def test_digests_tell_layouts_apart(first: list[tuple[int, ...]], second: list[tuple[int, ...]]) -> None:
    one, other = (FlatLayout.of((f"p{n}", shape) for n, shape in enumerate(s)) for s in (first, second))
    assert (one.digest() == other.digest()) == (first == second)
