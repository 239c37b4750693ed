"""Common random numbers: what is drawn of one node does not depend on what others do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.emulation.chances import Chances
from barnraise.emulation.churn import DEFAULT, FITS, Drawn
from barnraise.emulation.node import Node
from barnraise.emulation.simulator import Simulator
from barnraise.plan import Purpose, resolve

NODES = [f"n{index}" for index in range(12)]
Move = tuple[float, str, bool]


def test_a_node_and_a_purpose_have_a_generator_of_their_own() -> None:
    chances = Chances(3)
    first = [chances.of("a", "churn").random() for _ in range(2)]
    assert first[0] == first[1]
    assert len({first[0], chances.of("b", "churn").random(), chances.of("a", "tasks").random()}) == 3
    assert Chances(4).of("a", "churn").random() != first[0]


def test_how_often_one_machine_leaves_changes_nothing_for_another() -> None:
    def stays(others: int) -> list[float]:
        churn = Drawn(FITS[DEFAULT], Chances(1))
        found = []
        for _ in range(5):
            found.append(churn.up("a", 0.0))
            for _ in range(others):
                churn.down("b", 0.0)
        return found

    assert stays(0) == stays(7)


def moves(scheduler: str) -> tuple[list[Move], str]:
    """Return when nodes come and go in a run of four virtual hours, and the hash of its ledger."""
    content: dict[str, Any] = {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "sat", "examples": 20_000, "held_out": 20},
        "controller": {"scheduler": scheduler, "heartbeat": 20, "lease": 60},
        "workers": [{"name": name, "speed": 0.2 * (1 + index), "link": "cellular"} for index, name in enumerate(NODES)],
        "training": {"tokens": 1_000_000, "batch_size": 4, "local_steps": 10, "audits": 0.2},
    }
    found: list[Move] = []

    @contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        leave = simulator.replace

        def started(node: Node) -> None:
            found.append((simulator.now, node.spec.name, True))

        def left(node: Node) -> None:
            found.append((simulator.now, node.spec.name, False))
            leave(node)

        simulator.started, simulator.replace = started, left  # type: ignore[method-assign]
        yield

    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=len(NODES))
    result = simulate(plan, Trial(len(NODES), hours=4.0, churn=True, tokens_per_second=20.0), watch)
    return found, result.ledger_hash


def test_nodes_come_and_go_alike_whatever_the_scheduler_gives_them() -> None:
    (first, one), (second, other) = moves("fifo"), moves("random")
    assert one != other, "the schedulers did not do the same"
    assert len(first) > 20
    assert [move[1:] for move in first] == [move[1:] for move in second]
    assert [move[0] for move in first] == pytest.approx([move[0] for move in second])
