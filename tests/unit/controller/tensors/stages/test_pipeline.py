"""The stages of a version: a stage that is placed between two others runs between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from barnraise.controller.tensors.stages.arriving import Arrival, Look
from barnraise.controller.tensors.stages.base import Making, Stage
from barnraise.controller.tensors.stages.reducing import Reduce
from barnraise.core.errors import PayloadError, VersionRefusedError

from ..test_parameter_server import SIZE, Uploads, make_server, offer, slot, vector


class Factor(Stage):
    """Multiplies the aggregate, and counts the versions that it was asked about and those that were made."""

    def __init__(self, factor: float) -> None:
        self.factor, self.asked, self.made = factor, 0, torch.zeros(1)
        self.seen = np.zeros(SIZE, int)

    def prepare(self, making: Making) -> None:
        self.asked += 1

    def growth(self, making: Making, largest: float, before: Mapping[str, float], after: dict[str, float]) -> float:
        return largest * self.factor

    def step(self, making: Making, span: slice, values: Any) -> Any:
        self.seen[span] += 1
        values *= np.float32(self.factor)
        return values

    def end(self, making: Making) -> None:
        self.made += 1

    def state(self) -> dict[str, torch.Tensor]:
        return {"made": self.made}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.made = tensors["made"]


@pytest.mark.parametrize("downlink", ["none", "int8", "topk"])
def test_a_stage_behind_the_rule_sees_each_element_once_and_keeps_its_state(downlink: str) -> None:
    plain, staged = make_server(downlink=(downlink, {})), make_server(downlink=(downlink, {}))
    factor = Factor(0.5)
    place = [type(stage) for stage in staged.stages].index(Reduce)
    staged.stages.insert(place + 1, factor)
    uploads = Uploads(plain)
    for version in (1, 2, 3):
        uploads.add(version, vector(version))
        slots = [slot("a", (version, 1.0))]
        assert (
            plain.aggregate(version, slots, uploads.read, 0.5).digest
            == staged.aggregate(version, slots, uploads.read).digest
        )
    assert (factor.seen == 3).all()
    kept = {name: tensor.clone() for name, tensor in staged.state().items()}
    staged.aggregate(4, slots, uploads.read)
    staged.load(kept, 3)
    assert int(factor.made) == 3


def test_a_stage_that_makes_numbers_too_large_has_the_version_refused_before_anything_is_changed() -> None:
    server, factor = make_server(), Factor(1e38)
    server.stages.insert(4, factor)
    uploads, before = Uploads(server), server.parameters.clone()
    uploads.add(1, torch.full((SIZE,), 10.0))
    with pytest.raises(VersionRefusedError, match="would not be finite"):
        server.aggregate(1, [slot("a", (1, 1.0))], uploads.read)
    assert torch.equal(server.parameters, before)
    assert (factor.asked, int(factor.made), factor.seen.sum()) == (1, 0, 0)


class Picky(Look):
    def look(self, arrival: Arrival) -> None:
        if arrival.norm > 1.0:
            raise PayloadError(f"of norm {arrival.norm:g}")


def test_a_look_at_what_comes_may_refuse_it() -> None:
    server = make_server()
    server.looks["full"].append(Picky())
    codec = server.codecs[0]
    small, large = torch.zeros(SIZE), torch.zeros(SIZE)
    small[0], large[0] = 1.0, 2.0
    assert server.inspect(codec.encode(small).payload, offer()) == (1.0, "")
    assert server.inspect(codec.encode(large).payload, offer()) == (0.0, "of norm 2")
