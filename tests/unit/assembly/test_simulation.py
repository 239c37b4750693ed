"""The output of a simulation: its progress, its remaining time, and with real tensors the losses."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnraise.assembly.simulation import TASK_SECONDS, default_rate, nominal_rate, simulate
from barnraise.assembly.simulation_report import Report
from barnraise.assembly.trial import Trial
from barnraise.cli.progress import line, told
from barnraise.cli.simulate import _print
from barnraise.config import load
from barnraise.core.errors import ModelError
from barnraise.emulation.simulator import Simulator
from barnraise.plan import Purpose, resolve

RUN: dict[str, Any] = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
    "data": {
        "kind": "sat",
        "examples": 200,
        "held_out": 20,
        "held_out_sets": [{"name": "search", "formulas": 4, "backtracking": {"at_least": 1}}],
    },
    "training": {"tokens": 20_000, "batch_size": 4, "local_steps": 4},
}


def play(nodes: int = 3, watch: Any = None, **trial: Any) -> Report:
    plan = resolve(load(RUN), purpose=Purpose.SIMULATE, nodes=nodes)
    arguments = Trial(nodes, tokens_per_second=2000.0, **trial)
    return simulate(plan, arguments, watch) if watch else simulate(plan, arguments)


@pytest.mark.parametrize("hours", [None, 0.001])
def test_progress_goes_from_nothing_to_all(hours: float | None) -> None:
    seen: list[float] = []

    @contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        handle = simulator.controller.handle

        def noted(event: Any, now: float) -> Any:
            seen.append(simulator.progress())
            return handle(event, now)

        simulator.controller.handle = noted  # type: ignore[method-assign]
        yield
        seen.append(simulator.progress())

    play(watch=watch, hours=hours)
    assert seen[0] < 0.2
    assert seen == sorted(seen)
    assert seen[-1] >= 1.0


def test_the_line_says_how_long_it_will_take() -> None:
    lines: list[str] = []

    @contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        lines.append(line(simulator, 5.0))
        simulator.controller.state.totals.tokens = 5_000
        lines.append(line(simulator, 0.1))
        lines.append(line(simulator, 60.0))
        simulator.controller.state.totals.tokens = 0
        yield

    play(watch=watch)
    nothing, early, later = lines
    assert "starting" in nothing
    assert "starting" in early
    assert later.startswith(" 25.0%")
    assert "1 min so far, about 3 min to go" in later


def test_real_tensors_on_satisfiability_say_what_was_solved() -> None:
    found = play(real=True)
    assert found.sat is not None
    assert [one.all.formulas for one in found.sat.sets] == [20, 4]
    assert found.as_dict()["sat"]["searched"]["formulas"] >= 4
    assert play().sat is None


def test_a_report_as_a_dict_has_all_figures_side_by_side() -> None:
    found = play()
    figures = found.as_dict()
    assert (figures["tokens"], figures["accepted"]) == (found.tokens, found.verdicts.accepted)
    assert (figures["bytes_up"], figures["final_loss"]) == (found.traffic.bytes_up, None)
    assert figures["virtual_seconds"] == found.duration.virtual_seconds
    assert (figures["idle"], figures["conflicts"]) == (found.dispatch.idle, found.dispatch.conflicts)
    assert (figures["stability"], figures["mean_regret"]) == (None, None)  # there is one shard alone
    assert not any(isinstance(value, dict) for value in figures.values())


def test_how_stable_the_matching_was_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"kind": "text", "files": ["none.txt"], "context": [32, 64]}
    plan = resolve(load(RUN | {"data": data}), purpose=Purpose.SIMULATE, nodes=5)
    found = simulate(plan, Trial(5, hours=0.02, tokens_per_second=2000.0))
    figures = found.as_dict()
    assert (figures["stability"], figures["blocking_density"], figures["mean_nearly_stable"]) == (1.0, 0.0, 1.0)
    assert figures["moves"] >= figures["rematches"] > 0
    _print(found)
    text = " ".join(capsys.readouterr().out.split())
    assert f"{figures['rematches']} from one node to another; stability by time alone 1.00 (1.00 but for" in text


def test_tasks_are_foreseen_once_nodes_are_known() -> None:
    found = play(hours=0.05).dispatch
    assert found.predictions > 100
    assert found.prediction_error is not None
    assert found.prediction_error <= 0.15
    assert 0.0 <= found.idle < 0.5


def test_rows_that_are_skipped_come_last() -> None:
    usual, turned = play(nodes=1, real=True), play(nodes=1, real=True, skipped=0.5)
    assert turned.losses.first_loss == usual.losses.first_loss  # the same model and the same held-out rows
    assert turned.tokens == usual.tokens
    assert turned.losses.final_loss != usual.losses.final_loss


def test_a_piped_simulation_says_now_and_then_how_far_it_is() -> None:
    lines: list[str] = []
    told_one = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        told_one.set()

    @contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        with told(simulator, say, interval=0.001):
            yield
            assert told_one.wait(60)

    play(watch=watch)
    assert "of virtual time" in lines[0]
    assert lines[0] == lines[0].strip()


def test_a_small_models_default_pace_makes_a_task_last() -> None:
    """At two teraflops it would be over in less than a second, and a virtual day would be millions of tasks."""
    plan = resolve(load(RUN), purpose=Purpose.SIMULATE, nodes=3)
    small, large = default_rate(plan, 10_000), default_rate(plan, 100_000_000_000)
    assert plan.task_tokens / small == pytest.approx(TASK_SECONDS)
    assert large == nominal_rate(100_000_000_000)
    stated = RUN | {"workers": [{"name": "a", "flops_per_second": 1e12}]}
    plan = resolve(load(stated), purpose=Purpose.SIMULATE, nodes=1)
    assert default_rate(plan, 10_000) == nominal_rate(10_000), "machines that are told of are as fast as that"


@pytest.mark.parametrize(
    ("scheduler", "reason"), [("fifo", "this scheduler keeps none"), ("gale_shapley", "one lane of rows is on offer")]
)
def test_a_run_without_a_market_says_why(scheduler: str, reason: str) -> None:
    plan = resolve(load(RUN | {"controller": {"scheduler": scheduler}}), purpose=Purpose.SIMULATE, nodes=3)
    found = simulate(plan, Trial(3, hours=0.05, tokens_per_second=100.0))
    assert found.dispatch.matching is None
    assert reason in found.dispatch.no_market


def test_a_simulation_reports_nodes_without_work(capsys: pytest.CaptureFixture[str]) -> None:
    plan = resolve(load(RUN), purpose=Purpose.SIMULATE, nodes=60)
    found = simulate(plan, Trial(60))
    assert found.dispatch.contributors < found.nodes
    _print(found)
    told_of = capsys.readouterr().out
    assert f"{60 - found.dispatch.contributors} of 60 nodes" in " ".join(told_of.split())
    assert "more tokens" in told_of


def test_the_command_shows_progress_on_a_terminal_alone(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        "model: {architecture: gpt2}\ndata: {kind: sat}\ntraining: {tokens: 400000, local_steps: 50}\n"
    )
    command = [sys.executable, "-m", "barnraise.cli.main", "simulate", "run.yaml", "--nodes", "20"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    piped = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True, env=environment
    )
    assert piped.stderr.startswith("simulating 20 nodes; one of speed 1 trains on ")
    assert piped.stderr.count("\n") == 1
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, env=environment)
        os.close(theirs)
        shown = b"".join(_all_of(terminal))
        assert process.stdout is not None
        told = process.stdout.read().decode()
        assert process.wait(60) == 0
    assert b"of virtual time" in shown
    assert [row for row in told.splitlines() if not row.startswith("simulation")] == [
        row for row in piped.stdout.splitlines() if not row.startswith("simulation")
    ]


def _all_of(terminal: Any) -> Iterator[bytes]:
    """Until the other side is closed, which Linux tells as an error."""
    try:
        while piece := terminal.read(4096):
            yield piece
    except OSError:
        return


def test_rows_that_no_machine_has_the_memory_for_are_refused_by_name() -> None:
    content = RUN | {"workers": [{"name": "small", "memory_bytes": 1000}, {"name": "large", "memory_bytes": 2000}]}
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=2)
    with pytest.raises(ModelError, match=r"rows of .* tokens needs .*, but large, the largest machine, has 2"):
        simulate(plan, Trial(2))
