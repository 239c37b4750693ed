"""The forms of a command's log, and what it says while it is silent."""

from __future__ import annotations

import json
import time

import pytest

from barnraise.cli.log_forms import JSON, LIVE, PLAIN, emit, form_of, kept_told
from barnraise.core.errors import InputError, UnknownNameError


def test_without_a_terminal_the_form_is_plain() -> None:
    assert form_of("") == form_of("plain", plain=True) == PLAIN
    assert (form_of("live"), form_of("json")) == (LIVE, JSON)


def test_forms_that_disagree_or_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match="--log json is given: leave one of them out"):
        form_of("json", plain=True)
    with pytest.raises(UnknownNameError, match="did you mean 'plain'"):
        form_of("plan")


def test_an_event_is_one_line_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    emit("note", {"text": "two\nlines \x1b[2J"})
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["event"], told["text"]) == ("note", "two\nlines \x1b[2J")
    assert abs(told["time"] - time.time()) < 60
    assert "\x1b" not in line


def test_long_work_is_told_again_and_again_and_short_work_never() -> None:
    said: list[str] = []
    with kept_told(said.append, "writing the model", every=60.0):
        pass
    assert said == []
    with kept_told(said.append, "writing the model", every=0.01):
        while len(said) < 2:
            time.sleep(0.01)
    assert set(said) == {"still writing the model, after 0 s"}
    count = len(said)
    time.sleep(0.05)
    assert len(said) == count, "nothing is told once it is over"
