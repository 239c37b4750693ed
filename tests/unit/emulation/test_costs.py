"""The costs of simulated work: all work of a real machine takes time, and the controller's link is limited."""

from __future__ import annotations

from typing import Any

import pytest

from barnraise import compression
from barnraise.assembly.simulation import simulate
from barnraise.assembly.simulation_report import Report
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.state.effects import Aggregate
from barnraise.core.types import Blob, Contribution, News, ParameterRange, Update
from barnraise.emulation.access import Access
from barnraise.emulation.costs import FLOPS, ControllerCosts, NodeCosts
from barnraise.plan import Purpose, resolve

SIZE = 1_000_000
WHOLE = ParameterRange(0, SIZE)
MODEL = {"architecture": "gpt2", "config": {"hidden_size": 384, "num_layers": 6, "num_heads": 6}}


def play(*, network: dict[str, Any] | None = None, controller: dict[str, Any] | None = None, **training: Any) -> Report:
    """Simulate sixteen tasks of eight nodes, whose links take almost no time."""
    settings = {"tokens": 16 * 2560, "batch_size": 4, "local_steps": 10, "auto_tune": False}
    content = {
        "model": MODEL,
        "data": {"kind": "sat", "context": 64},
        "network": network or {},
        "controller": controller or {},
        "training": settings | training,
    }
    return simulate(resolve(load(content), purpose=Purpose.SIMULATE, nodes=8), Trial(8, tokens_per_second=1e5))


def costs(codec: str = "int4", *, robust: bool = False) -> ControllerCosts:
    return ControllerCosts(
        SIZE, codec, codec, robust=robust, model_size=SIZE, evaluation_tokens=1000, row_tokens=100, flops=FLOPS
    )


def payload(codec: str) -> Blob:
    return Blob("0" * 64, compression.create(codec).max_bytes(SIZE))


def test_encoding_takes_workers_time() -> None:
    none, coded = play(), play(compression="entropy_coded")
    longer = coded.duration.virtual_seconds - none.duration.virtual_seconds
    assert longer > 0.2  # 10M elements at 35 ns, once or twice in a row


def test_decoding_takes_the_controllers_time() -> None:
    contribution = Contribution(
        assignment=1, base=0, parameters=WHOLE, payload=payload("int4"), steps=10, loss=1.0, seconds=1.0, codec=0
    )
    assert costs("entropy_coded").inspect(contribution) > 1.5 * costs("int4").inspect(contribution)

    def version(nodes: int, **changes: Any) -> float:
        slots = tuple(Slot(str(node), WHOLE, (Held(node, 1.0, 0),)) for node in range(nodes))
        sizes = dict.fromkeys(range(nodes), contribution.payload.num_bytes)
        return costs(**changes).aggregate(Aggregate(1, 1, slots, 1.0), payload("int4"), sizes)

    assert version(8) - version(4) == pytest.approx(4 * (version(2) - version(1)))
    assert version(4, robust=True) > version(4)
    assert version(1) > 4 * SIZE / 2e9  # the hash alone


def test_a_replica_is_hashed_after_each_version() -> None:
    delta = Update("delta", 1, payload("int4"), "0" * 64)
    part = Update("delta", 2, Blob("0" * 64, 100), "0" * 64, ParameterRange(0, 100))
    node = NodeCosts(SIZE, "int4", "int4")
    one, both = node.apply(News((delta,), 0, 1.0)), node.apply(News((delta, part), 0, 1.0))
    assert one > both - one > 4 * SIZE / 2e9


def test_evaluation_takes_time() -> None:
    few, many = (play(controller={"evaluation_rows": rows}) for rows in (1, 4096))
    assert many.duration.virtual_seconds > few.duration.virtual_seconds + 100.0


def test_a_machine_that_computes_twice_as_fast_evaluates_in_half_the_time() -> None:
    one, two = (
        ControllerCosts(
            SIZE, "int4", "int4", robust=False, model_size=SIZE, evaluation_tokens=1000, row_tokens=100, flops=flops
        ).evaluate
        for flops in (FLOPS, 2 * FLOPS)
    )
    assert one == pytest.approx(2 * two)


def test_the_controllers_own_line_has_a_limit() -> None:
    """Eight nodes fetch 43 MB each, which takes 27 s over 100 Mbit/s."""
    wide, usual, narrow = (
        play(network={"controller_link": link} if link else {}) for link in ("100gbit", None, "100mbit")
    )
    assert usual.duration.first_task_seconds is not None
    assert narrow.duration.first_task_seconds is not None
    assert wide.duration.first_task_seconds is not None
    assert wide.duration.first_task_seconds < usual.duration.first_task_seconds < narrow.duration.first_task_seconds
    assert narrow.duration.virtual_seconds > wide.duration.virtual_seconds + 20.0


def test_late_bytes_pass_a_fast_line_without_delay() -> None:
    line = Access(100.0)
    assert line.take(10.0, 100, late=True) == (9.0, 10.0)
    assert line.take(10.0, 100, late=True) == (10.0, 11.0)
    assert line.take(10.0, 100) == (11.0, 12.0)
