"""The example of the original overview, word for word: refused where its rule has no guarantee, and trained with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config.document import read
from barnraise.config.load import build
from barnraise.core.errors import RunFileError
from barnraise.plan import Plan, Purpose, resolve

from ...campaigns import campaign

EXAMPLES = Path(__file__).parents[3] / "examples"
EXAMPLE = EXAMPLES / "overview.yaml"
TRIMMED = EXAMPLES / "overview-trimmed.yaml"
VERBATIM = """
controller: {use_async_training: true, max_staleness: 50, adaptive_staleness: true, use_zmq: true}
training: {compression: topk, compression_ratio: 0.01, aggregation_rule: bulyan, bulyan_f: 2}
"""
SMALL = {"training.tokens": 60_000, "training.local_steps": 3, "training.learning_rate": 0.004, "data.examples": 1000}


def planned(nodes: int, **training: Any) -> Plan:
    changes = {f"training.{key}": value for key, value in training.items()}
    return resolve(build(read(EXAMPLE), SMALL | changes), purpose=Purpose.SIMULATE, nodes=nodes)


def test_the_example_has_the_overviews_words() -> None:
    assert VERBATIM in EXAMPLE.read_text()
    other = VERBATIM.replace("bulyan, bulyan_f: 2", "trimmed_mean, trim_ratio: 0.3")
    assert other in TRIMMED.read_text()


def test_it_is_sound_as_it_is() -> None:
    assert len(build(read(EXAMPLE)).workers) == 11
    assert resolve(build(read(EXAMPLE))).aggregation.minimum_nodes == 11


def test_with_nine_it_is_refused_with_the_reason() -> None:
    with pytest.raises(RunFileError, match=r"bulyan with f=2 needs n >= 4f\+3, here 11 nodes, but the run has 9 nodes"):
        planned(9)


@pytest.mark.parametrize(
    ("nodes", "training", "guaranteed"),
    [
        pytest.param(11, {}, True, id="2 of 11"),
        campaign(9, {"aggregation_f": 1}, True, id="1 of 9"),
        campaign(9, {"unguaranteed": True}, False, id="2 of 9, unguaranteed"),
    ],
)
def test_it_trains(nodes: int, training: dict[str, Any], guaranteed: bool) -> None:
    plan = planned(nodes, **training)
    assert plan.aggregation.guaranteed(nodes) is guaranteed
    found = simulate(plan, Trial(nodes, real=True, tokens_per_second=1000.0))
    assert found.versions > 1
    assert found.losses.first_loss is not None
    assert found.losses.final_loss is not None
    assert found.losses.final_loss < found.losses.first_loss


def test_the_other_case_trains_and_needs_four() -> None:
    plan = resolve(build(read(TRIMMED), SMALL), purpose=Purpose.SIMULATE, nodes=8)
    assert plan.aggregation.minimum_nodes == 4
    found = simulate(plan, Trial(8, real=True, tokens_per_second=1000.0))
    assert found.losses.first_loss is not None
    assert found.losses.final_loss is not None
    assert found.losses.final_loss < found.losses.first_loss
    with pytest.raises(RunFileError, match=r"trim_ratio=0.3 needs n >= 1/trim_ratio, here 4 "):
        resolve(build(read(TRIMMED), SMALL | {"aggregation.buffer_size": 3}), purpose=Purpose.SIMULATE, nodes=8)
