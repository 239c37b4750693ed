"""Trackers get the figures that are on the ledger, each once, while the run works and afterwards."""

from __future__ import annotations

import importlib.util
import math
import struct
from collections import defaultdict
from pathlib import Path

import pytest

from barnraise.account.reducer import RowFeed
from barnraise.account.tracking.following import Tracking
from barnraise.account.tracking.measures import Measures
from barnraise.account.tracking.trackers import CLASSES
from barnraise.core.errors import InputError, UnknownNameError
from barnraise.core.trackers import TRACKERS, require, why_missing
from barnraise.ledger import Ledger, LedgerView, Noted, RunDirectory, VersionClosed, notes

Scalars = dict[str, list[tuple[int, float]]]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create("barn", tmp_path)


def scalars(folder: Path) -> Scalars:
    """Read TensorBoard's event files: records of a length, its checksum, the content, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found: Scalars = defaultdict(list)
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content, place = path.read_bytes(), 0
        while place < len(content):
            (length,) = struct.unpack_from("<Q", content, place)
            event = Event.FromString(content[place + 12 : place + 12 + length])
            for value in event.summary.value:
                found[value.tag].append((event.step, value.simple_value))
            place += length + 16
    return dict(found)


def write(ledger: Ledger, version: int, loss: float | None) -> None:
    time = 10.0 * version
    noted = Noted(time, notes.Evaluated(version, loss, 1000 * version))
    ledger.commit([VersionClosed(time, version, (), 2, 1000, "full"), noted], {})


def test_tensorboard_shows_what_is_on_the_ledger_and_nothing_twice(run: RunDirectory) -> None:
    ledger = Ledger(run.ledger, run.segments)
    write(ledger, 1, 2.0)
    tracking = Tracking(run, ["tensorboard"])
    assert tracking.advance() == 2
    write(ledger, 2, 1.0)
    assert tracking.advance() == 2
    assert tracking.advance() == 0
    tracking.close()
    write(ledger, 3, None)
    again = Tracking(run, ["tensorboard"])  # as a resumed run has it
    assert again.advance() == 1
    again.close()
    ledger.close()
    found = scalars(run.path / "tracking" / "tensorboard")
    assert sorted(found["evaluation/loss"]) == [(1, 2.0), (2, 1.0)]
    assert sorted(found["evaluation/perplexity"])[1] == (2, pytest.approx(math.e))
    assert sorted(found["training/tokens"]) == [(1, 1000.0), (2, 2000.0), (3, 3000.0)]


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    assert set(CLASSES) == set(TRACKERS)
    for name, module in TRACKERS.items():
        if importlib.util.find_spec(module) is None:
            with pytest.raises(InputError, match=rf"'{name}' needs .* {module}: pip install 'barnraise\[{name}\]'"):
                require([name])
    with pytest.raises(UnknownNameError, match="did you mean 'wandb'"):
        require(["wanbd"])


@pytest.mark.parametrize("name", sorted(set(TRACKERS) - {"tensorboard"}))
def test_other_trackers_take_the_same_figures(run: RunDirectory, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := why_missing(name):
        pytest.skip(why)
    monkeypatch.setenv("WANDB_MODE", "offline")
    ledger = Ledger(run.ledger, run.segments)
    write(ledger, 1, 2.0)
    tracking = Tracking(run, [name])
    assert tracking.advance() == 2
    tracking.close()
    ledger.close()
    assert [path for path in (run.path / "tracking" / name).rglob("*") if path.is_file()]


def test_losses_of_training_are_weighted_by_tokens_and_those_that_are_no_numbers_left_out(run: RunDirectory) -> None:
    measures = Measures(open={1: (2.0, 100, 1), 2: (4.0, 300, 3), 3: (math.nan, 100, 2)})
    ledger = Ledger(run.ledger, run.segments)
    ledger.commit([VersionClosed(1.0, 1, (1, 2, 3), 3, 500, "full")], {})
    with LedgerView(run.ledger) as view:
        RowFeed(view, [measures]).advance()
    ledger.close()
    (point,) = measures.take()
    assert point.figures["training/loss"] == 3.5
    assert point.figures["training/staleness"] == 2.0
    assert measures.open == {}
