"""Which updates a version is better without, measured with a small model that honest nodes or attackers train."""

from __future__ import annotations

import argparse
import doctest
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.batches import labelled
from torch import Tensor

from barnraise import aggregation, compression, training
from barnraise.aggregation.defaults import AUTOMATIC_F, DEFENDED, TRUSTING
from barnraise.controller.state import actions as act
from barnraise.controller.state import effects
from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.controller.tensors.weigher import Weigher
from barnraise.core.errors import CorruptionError
from barnraise.core.types import ParameterRange
from barnraise.data.shards import Dataset
from barnraise.data.text import build as build_data
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.models.exchange.record import Exchange
from barnraise.training.local import LocalTrainer, batch_loss

NODES, STEPS, RATE = 7, 12, 0.003


class Fleet:
    """Seven nodes whose honest updates of one version are there."""

    def __init__(self, folder: Path) -> None:
        build_data(folder / "data", [argparse.__file__, doctest.__file__], context=32)
        self.data = Dataset.open(folder / "data")
        config = describe(
            {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 1, "num_heads": 2}},
            self.data.meta.vocab_size,
            32,
        )
        torch.manual_seed(0)
        self.trainer = LocalTrainer(build(config), optimizer="adamw", options={"learning_rate": 0.0}, gradient_clip=1.0)
        self.rows = np.random.default_rng(0).permutation(self.data.rows(0, 0, 900)["tokens"]).astype(np.int64)
        self.weigher, self.start = (
            Weigher(Evaluator(config, Exchange.of(config), self.data, 16)),
            self.trainer.flat.vector.clone(),
        )
        self.start = self.start - self.trained(NODES, steps=120)  # so that there is something to lose
        self.updates = [self.trained(node) for node in range(NODES)]
        self.server = ParameterServer(
            self.start.clone(),
            0,
            rule=aggregation.create(list(DEFENDED), f=AUTOMATIC_F, fallback=TRUSTING),
            codecs=[compression.create("none")],
            downlink=compression.create("none"),
            outer=training.create("sgd"),
        )

    def trained(self, node: int, steps: int = STEPS) -> Tensor:
        """Return the pseudo-gradient of `steps` steps on the node's rows."""
        self.trainer = self.trainer.anew()
        self.trainer.load(self.start)
        own = self.rows[100 * node : 100 * node + 100]
        for step in range(steps):
            batch = own[4 * step % 100 : 4 * step % 100 + 4]
            self.trainer.step(labelled(batch), RATE)
        return self.start - self.trainer.flat.vector

    def found(
        self, updates: Sequence[Tensor], *, most: int = 3, spans: int = 1, lost: int = -1
    ) -> tuple[tuple[str, ...], float]:
        """Return the nodes that a version of these updates excludes, each update in `spans` slots."""
        size, slots, payloads = len(self.start), list[act.Slot](), dict[int, bytes]()
        cuts = [size * part // spans for part in range(spans + 1)]
        for node, update in enumerate(updates):
            for begin, end in pairwise(cuts):
                number = len(payloads)
                payloads[number] = bytes(self.server.codecs[0].encode(update[begin:end].clone()).payload)
                slots.append(act.Slot(f"n{node}", ParameterRange(begin, end), (act.Held(number, 1.0, 0),)))

        def read(number: int) -> bytes:
            if number == lost:
                raise CorruptionError("is damaged")
            return payloads[number]

        return self.weigher.excluded(
            self.server, effects.Gate(1, 1, tuple(slots), 1.0, most=most, rows=48, seed=5), read
        )

    def lies(self, count: int, length: float = 1.0) -> list[Tensor]:
        """Return `count` equal updates uphill from the honest mean, at `length` times the usual distance from it."""
        mean = torch.stack(self.updates[count:]).mean(0)
        spread = float(torch.stack(self.updates).sub(mean).norm(dim=1).median())
        self.trainer.load(self.start - mean)
        rows = self.rows[800:860]
        self.trainer.flat.gradient.zero_()
        torch.autograd.backward(
            batch_loss(self.trainer.problem, self.trainer.module, labelled(rows), self.trainer.device)
        )
        way = -self.trainer.flat.gradient / self.trainer.flat.gradient.norm()
        return [mean + length * spread * way] * count


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("fleet"))


@pytest.mark.parametrize("spans", [1, 3])
def test_updates_that_raise_the_loss_are_left_out(fleet: Fleet, spans: int) -> None:
    nodes, gain = fleet.found([*fleet.lies(2), *fleet.updates[2:]], spans=spans)
    assert nodes[:2] == ("n0", "n1")
    assert gain > 0.1


def test_no_more_are_left_out_than_may_be(fleet: Fleet) -> None:
    nodes, _ = fleet.found([*fleet.lies(2), *fleet.updates[2:]], most=1)
    assert len(nodes) == 1
    assert nodes[0] in ("n0", "n1")


def test_a_lie_that_the_rule_leaves_out_needs_no_gate(fleet: Fleet) -> None:
    assert fleet.found([*fleet.lies(2, 8.0), *fleet.updates[2:]]) == ((), 0.0)


def test_the_model_does_not_move_when_two_of_four_nodes_lie(fleet: Fleet) -> None:
    nodes, gain = fleet.found([*fleet.lies(2), *fleet.updates[2:4]], most=1)
    assert sorted(nodes) == ["n0", "n1", "n2", "n3"]
    assert gain > 0.1


def test_few_honest_nodes_are_left_out_and_only_where_the_loss_falls(fleet: Fleet) -> None:
    nodes, gain = fleet.found(fleet.updates)
    assert len(nodes) < 3
    assert gain >= 0.0


def test_an_update_that_leads_back_is_left_out(fleet: Fleet) -> None:
    nodes, gain = fleet.found([-2.0 * fleet.updates[0], *fleet.updates[1:]])
    assert nodes[:1] == ("n0",)
    assert gain > 0.0


def test_the_same_question_has_the_same_answer_and_changes_nothing(fleet: Fleet) -> None:
    given, before = [*fleet.lies(2), *fleet.updates[2:]], fleet.server.parameters.clone()
    assert fleet.found(given) == fleet.found(given)
    assert torch.equal(fleet.server.parameters, before)
    assert fleet.server.version == 0


def test_unreadable_payloads_leave_no_node_out(fleet: Fleet) -> None:
    assert fleet.found(fleet.updates, lost=2) == ((), 0.0)
