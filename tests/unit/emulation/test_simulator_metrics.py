"""A simulated run with metrics measures its last version, with sizes alone and with real tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config.load import load
from barnraise.controller.state.effects import Measured
from barnraise.plan.purpose import Purpose
from barnraise.plan.resolve import resolve


@pytest.mark.parametrize("real", [False, True])
def test_a_simulated_run_is_measured_to_its_end(real: bool, tmp_path: Path) -> None:
    text = "the barn is raised by many hands.\n" * 300
    (tmp_path / "text.txt").write_text(text)
    content: dict[str, Any] = {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1}},
        "data": {"kind": "text", "files": [str(tmp_path / "text.txt")], "context": 32},
        "training": {"tokens": 4000, "batch_size": 2, "local_steps": 4},
        "evaluation": {"times": 3, "rows": 4, "metrics": ["perplexity"], "prompts": ["the barn"], "sample_tokens": 4},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(content))
    kept: list[Any] = []
    answers: list[Measured] = []

    @contextmanager
    def watch(simulator: Any) -> Iterator[None]:
        kept.append(simulator)
        whole = simulator.work.carry_out

        def carry_out(effect: Any) -> Any:
            answer = whole(effect)
            answers.extend([answer] if isinstance(answer, Measured) else [])
            return answer

        simulator.work.carry_out = carry_out
        yield

    plan = resolve(load(tmp_path / "run.yaml"), purpose=Purpose.SIMULATE, nodes=2)
    simulate(plan, Trial(2, tokens_per_second=2000.0, real=real), watch)
    state = kept[0].controller.state
    assert state.progress.finished
    assert state.record.measured == state.newest.version > 0
    assert len(answers) >= 3
    assert [sample.prompt for sample in answers[-1].samples] == (["the barn"] if real else [])
