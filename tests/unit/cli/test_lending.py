"""The output of `barnraise join` for the owner of the machine."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from barnraise.cli import lending
from barnraise.core.errors import InputError, UnknownNameError
from barnraise.wire.messages import Ack
from barnraise.worker.progress import Progress, line, notices, progress, summary
from barnraise.worker.tally import Answers

from ...state_machine.bench import Bench

DONE = Answers(accepted=3, others=1, tokens=12_000, steps=12)
NOW = Progress("waiting for a task", 60.0, DONE, 450.0, 2000, 90_000, 0.0, 1, math.inf)


def reading(bench: Bench) -> Progress:
    return progress(bench.worker, began=0.0, now=bench.now, step=1, bytes_up=0, bytes_down=0)


def working() -> Bench:
    """Return a worker whose first task runs."""
    bench = Bench()
    assert reading(bench).doing == "waiting for the controller's welcome"
    bench.welcome()
    assert reading(bench).doing == "fetching the run's files and building the model"
    bench.set_up()
    while bench.training is None:
        for step in bench.due():
            step()
    return bench


def test_it_counts_what_the_controller_answered() -> None:
    bench = working()
    task = bench.training
    assert task is not None
    assert reading(bench).doing == f"training (task {task.id}, step 1 of {task.steps})"
    bench.finish_task()
    assert reading(bench).answers.count == 0
    bench.ack(task.id, True)
    bench.ack(task.id, True)
    told = reading(bench).answers
    assert (told.accepted, told.refused, told.steps) == (1, 0, 4)
    assert told.tokens == round(task.effort * 4 / task.steps)
    while bench.training is None:
        for step in bench.due():
            step()
    second = bench.training.id
    bench.finish_task()
    bench.hear(Ack(second, False, "too stale"))
    told = reading(bench).answers
    assert (told.accepted, told.refused, told.reason) == (1, 1, "too stale")


def test_a_lost_and_a_recovered_controller_are_reported() -> None:
    bench = working()
    before = reading(bench)
    assert before.silent == 0.0
    bench.now += bench.worker.contact.lease + 5.0
    lost = reading(bench)
    assert lost.silent > 0.0
    assert "nothing heard from the controller" in " ".join(notices(before, lost))
    assert not list(notices(lost, replace(lost, silent=lost.silent + 1)))
    assert "answers again" in " ".join(notices(lost, before))
    assert "a standby took over" in " ".join(notices(replace(NOW, epoch=1), replace(NOW, epoch=2)))


def test_a_reason_of_refusals_is_told_once() -> None:
    refused = replace(NOW, answers=replace(DONE, refused=1, reason="too stale \x1b[2J"))
    (text,) = notices(NOW, refused)
    assert text == "a contribution was refused: too stale [2J"
    assert not list(notices(refused, replace(refused, answers=replace(refused.answers, refused=2))))


def test_a_line_and_a_summary() -> None:
    assert line(NOW) == (
        "3 contributions, 12,000 tokens, 1 other result, 450 tokens/s, up 2.0 kB, down 90.0 kB; waiting for a task"
    )
    assert line(replace(NOW, left=3600.0)).endswith("; 1 h left")
    assert summary(NOW) == (
        "this machine did 3 contributions, 12,000 tokens, 1 other result, 12 steps; 2.0 kB sent, 90.0 kB received, "
        "in 1 min"
    )


def test_json_has_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    view = lending.make_view("json", plain=False, verbose=True)
    view.note("joined")
    view.update(NOW)
    view.update(replace(NOW, answers=replace(DONE, accepted=4), left=10.4))
    view.close()
    told = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [item["event"] for item in told] == ["note", "progress", "end"]
    assert (told[1]["accepted"], told[1]["left"], told[0]["text"]) == (4, 10, "joined")


def test_a_log_is_silent_of_what_does_not_change(capsys: pytest.CaptureFixture[str]) -> None:
    for verbose, lines in ((False, 1), (True, 2)):
        view = lending.make_view("", True, verbose)
        for accepted in (0, 0, 1, 1):
            view.update(replace(NOW, answers=replace(DONE, accepted=accepted)))
        view.close()
        assert len(capsys.readouterr().err.splitlines()) == lines


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'json'"):
        lending.make_view("jsn", False, False)
    with pytest.raises(InputError, match="leave one of them out"):
        lending.make_view("json", True, False)
