"""Trackers get the figures that are on the ledger, each once, while the run works and afterwards."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import math
import os
import struct
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barnraise.account.reducer import RowFeed
from barnraise.account.tracking import handing
from barnraise.account.tracking.base import Tracker, VersionFigures
from barnraise.account.tracking.following import POSITIONS, Tracking
from barnraise.account.tracking.measures import Measures
from barnraise.account.tracking.trackers import CLASSES, hushed
from barnraise.core.errors import InputError, UnknownNameError
from barnraise.core.trackers import TRACKERS, require, why_missing
from barnraise.ledger import Ledger, LedgerView, Noted, RunDirectory, VersionClosed, notes

Scalars = dict[str, list[tuple[int, float]]]

HANGING = """
import asyncio, sys, threading
from pathlib import Path
from barnraise.account.tracking.following import Tracking
from barnraise.account.tracking.trackers import CLASSES, TensorBoard
from barnraise.ledger import RunDirectory

hung = threading.Event()

class Hanging(TensorBoard):
    def log(self, point):
        hung.set()
        threading.Event().wait()

async def host():
    tracking = Tracking(RunDirectory(Path(sys.argv[1])), ["tensorboard"])
    following = asyncio.ensure_future(tracking.follow(print, every=0.0))
    while not hung.is_set():
        await asyncio.sleep(0.01)
    following.cancel()
    await asyncio.to_thread(tracking.finish, print, 0.1)

CLASSES["tensorboard"] = Hanging
asyncio.run(host())
print("the host ended")
"""


class Listed(Tracker):
    """A tracker that writes the versions it takes to a file, and raises at version `worst`."""

    worst = 0

    def __init__(self, run: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "versions"

    def log(self, point: VersionFigures) -> None:
        if point.version == self.worst:
            raise OSError(f"version {point.version} is too much")
        with self._path.open("a") as file:
            file.write(f"{point.version} ")

    def close(self) -> None: ...


class Hanging(Listed):
    """A tracker that takes nothing before `released` is set."""

    released = threading.Event()

    def log(self, point: VersionFigures) -> None:
        self.released.wait()
        super().log(point)


class Slow(Listed):
    """A tracker that takes a point each time that `released` is set."""

    released = threading.Event()

    def log(self, point: VersionFigures) -> None:
        self.released.wait()
        self.released.clear()
        super().log(point)


class Quitting(Listed):
    def log(self, point: VersionFigures) -> None:
        raise SystemExit("no")


class Failing(Listed):
    worst = 2


class Unclosed(Listed):
    def close(self) -> None:
        raise OSError("no answer")


@pytest.fixture
def classes(monkeypatch: pytest.MonkeyPatch) -> dict[str, type[Tracker]]:
    """More trackers: one that raises at version 2, one that raises at its end, one that works, one that hangs."""
    more = {"failing": Failing, "unclosed": Unclosed, "listed": Listed, "hanging": Hanging}
    more |= {"slow": Slow, "quitting": Quitting}
    for name, tracker in more.items():
        monkeypatch.setitem(CLASSES, name, tracker)
        monkeypatch.setitem(TRACKERS, name, "json")
    return CLASSES


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create("barn", tmp_path)


def values(folder: Path) -> Iterator[tuple[int, Any]]:
    """Yield steps and values of TensorBoard's event files: records of a length, its checksum, the content, its own."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.glob("events.out.tfevents.*")):
        content, place = path.read_bytes(), 0
        while place < len(content):
            (length,) = struct.unpack_from("<Q", content, place)
            event = Event.FromString(content[place + 12 : place + 12 + length])
            yield from ((event.step, value) for value in event.summary.value)
            place += length + 16


def scalars(folder: Path) -> Scalars:
    found: Scalars = defaultdict(list)
    for step, value in values(folder):
        found[value.tag].append((step, value.simple_value))
    return dict(found)


def texts(folder: Path) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for step, value in values(folder):
        for text in value.tensor.string_val:
            found[value.tag][step] = text.decode()
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


def test_tensorboard_shows_samples_as_the_model_wrote_them(run: RunDirectory) -> None:
    ledger = Ledger(run.ledger, run.segments)
    samples = notes.TextSample("1 + 1 =", " 2"), notes.TextSample("say", "```\n<script>\x1b[2J")
    ledger.commit([Noted(10.0, notes.Measured(1, 1000, {}, samples))], {})
    tracking = Tracking(run, ["tensorboard"])
    assert tracking.advance() == 1
    tracking.close()
    ledger.close()
    [(name, found)] = texts(run.path / "tracking" / "tensorboard").items()
    assert name.startswith("evaluation/samples")
    assert "```\n1 + 1 =\n->  2\n```" in found[1]
    assert "````\nsay\n-> ```\n<script>\ufffd[2J\n````" in found[1]


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    assert set(CLASSES) == set(TRACKERS)
    for name, module in TRACKERS.items():
        if importlib.util.find_spec(module) is None:
            with pytest.raises(InputError, match=rf"'{name}' needs .* {module}: pip install 'barnraise\[{name}\]'"):
                require([name])
    with pytest.raises(UnknownNameError, match="did you mean 'wandb'"):
        require(["wanbd"])


@pytest.mark.parametrize("name", sorted(set(TRACKERS) - {"tensorboard"}))
def test_other_trackers_take_the_same_figures(
    run: RunDirectory, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if why := why_missing(name):
        pytest.skip(why)
    monkeypatch.setenv("WANDB_MODE", "offline")
    ledger = Ledger(run.ledger, run.segments)
    write(ledger, 1, 2.0)
    tracking, told = Tracking(run, [name]), list[str]()
    assert tracking.advance() == 2
    write(ledger, 2, 1.0)
    ledger.commit([Noted(25.0, notes.Measured(2, 2000, {"x": 1.0}, (notes.TextSample("a", "<b>"),)))], {})
    tracking.finish(told.append)  # in another thread
    ledger.close()
    assert (told, capsys.readouterr().out) == ([], "")
    assert [path for path in (run.path / "tracking" / name).rglob("*") if path.is_file()]


def test_losses_of_training_are_weighted_by_tokens_and_those_that_are_no_numbers_left_out(run: RunDirectory) -> None:
    measures = Measures(open={1: (2.0, 100, 1), 2: (4.0, 300, 3), 3: (math.nan, 100, 2)})
    ledger = Ledger(run.ledger, run.segments)
    ledger.commit([VersionClosed(1.0, 1, (1, 2, 3), 3, 500, "full")], {})
    with LedgerView(run.ledger) as view:
        RowFeed(view, [measures]).advance()
    ledger.close()
    (point,) = measures.points
    assert point.figures["training/loss"] == 3.5
    assert point.figures["training/staleness"] == 2.0
    assert measures.open == {}


def taken(run: RunDirectory, name: str) -> str:
    return (run.path / "tracking" / name / "versions").read_text()


@pytest.mark.usefixtures("classes")
def test_a_tracker_that_raises_is_left_out_and_gets_what_it_lacks_later(
    run: RunDirectory, classes: dict[str, type[Tracker]]
) -> None:
    told: list[str] = []
    with Ledger(run.ledger, run.segments) as ledger:
        write(ledger, 1, None)
        write(ledger, 2, None)
        tracking = Tracking(run, ["failing", "listed"])
        assert tracking.advance() == 2
        write(ledger, 3, None)
        tracking.finish(told.append)
    assert taken(run, "failing") == "1 "
    assert taken(run, "listed") == "1 2 3 "
    assert len(told) == 1
    assert "failing gets no more figures: version 2 is too much; what it lacks is written by:" in told[0]
    assert f"report {run.path} --to failing" in told[0]
    classes["failing"] = Listed
    again = Tracking(run, ["failing", "listed"])
    assert again.advance() == 2
    again.close()
    assert taken(run, "failing") == taken(run, "listed") == "1 2 3 "


@pytest.mark.usefixtures("classes")
def test_trackers_that_cannot_be_opened_or_closed_leave_the_others_alone(run: RunDirectory) -> None:
    told: list[str] = []
    (run.path / "tracking").mkdir()
    (run.path / "tracking" / "failing").write_text("a file, where the tracker has its folder")
    with Ledger(run.ledger, run.segments) as ledger:
        write(ledger, 1, None)
    Tracking(run, ["failing", "unclosed", "listed"]).finish(told.append)
    assert [line.split()[1] for line in told] == ["failing", "unclosed"]
    assert taken(run, "unclosed") == taken(run, "listed") == "1 "


@pytest.mark.usefixtures("classes")
def test_following_reports_a_tracker_that_raises_and_ends_when_none_is_left(run: RunDirectory) -> None:
    told: list[str] = []
    with Ledger(run.ledger, run.segments) as ledger:
        write(ledger, 2, None)
    tracking = Tracking(run, ["failing"])
    asyncio.run(tracking.follow(told.append, every=0.0))
    tracking.finish(told.append)
    assert len(told) == 1


@pytest.mark.usefixtures("classes")
@pytest.mark.parametrize("content", [b"", b'{"listed": ', b"[1]", b'{"listed": "one"}', b'{"\xff": 1}'])
def test_damaged_positions_count_as_none(run: RunDirectory, content: bytes) -> None:
    path = run.path / "tracking" / POSITIONS
    path.parent.mkdir()
    path.write_bytes(content)
    with Ledger(run.ledger, run.segments) as ledger:
        write(ledger, 1, None)
    tracking = Tracking(run, ["listed"])
    assert tracking.advance() == 1
    tracking.close()
    assert list(msgspec.json.decode(path.read_bytes())) == ["listed"]


@pytest.mark.usefixtures("classes")
def test_positions_are_replaced_as_a_whole(run: RunDirectory) -> None:
    path = run.path / "tracking" / POSITIONS
    with Ledger(run.ledger, run.segments) as ledger:
        write(ledger, 1, None)
        tracking = Tracking(run, ["listed"])
        tracking.advance()
        before = path.read_bytes()
        os.link(path, run.path / "kept")  # a file that is written in place would change here too
        write(ledger, 2, None)
        tracking.advance()
        tracking.close()
    assert (run.path / "kept").read_bytes() == before != path.read_bytes()


def test_a_tracker_that_hangs_keeps_no_host_from_ending(run: RunDirectory) -> None:
    with Ledger(run.ledger, run.segments) as ledger:
        write(ledger, 1, None)
    done = subprocess.run(
        [sys.executable, "-c", HANGING, str(run.path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "tensorboard gets no more figures: it took more than 0.1 s; what it lacks is written by:" in done.stdout
    assert done.stdout.endswith("the host ended\n")


@pytest.mark.usefixtures("classes")
def test_a_tracker_that_hangs_holds_up_no_other(run: RunDirectory) -> None:
    told: list[str] = []
    Hanging.released.clear()
    tracking = Tracking(run, ["hanging", "listed"])
    with Ledger(run.ledger, run.segments) as ledger:
        write(ledger, 1, None)
        tracking.advance(0.1)
        write(ledger, 2, None)
        tracking.advance(0.1)
        tracking.finish(told.append, 0.2)
    assert taken(run, "listed") == "1 2 "
    assert len(told) == 1
    assert "hanging gets no more figures: it took more than 0.2 s; what it lacks is written by:" in told[0]
    assert list(msgspec.json.decode((run.path / "tracking" / POSITIONS).read_bytes())) == ["listed"]
    Hanging.released.set()


@pytest.mark.usefixtures("classes")
def test_a_tracker_that_leaves_too_many_figures_waiting_gets_no_more(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing, "MOST_WAITING", 2)
    Hanging.released.clear()
    tracking = Tracking(run, ["hanging", "listed"])
    with Ledger(run.ledger, run.segments) as ledger:
        for version in range(1, 4):  # the first is in the tracker's hands, two may wait
            assert tracking.failures == {}
            write(ledger, version, None)
            tracking.advance(0.1)
        write(ledger, 4, None)
        tracking.advance(0.1)
    assert tracking.failures == {"hanging": "it hangs, and 2 figures wait for it"}
    Hanging.released.set()
    tracking.close()
    assert taken(run, "listed") == "1 2 3 4 "
    assert taken(run, "hanging") == "1 "


@pytest.mark.usefixtures("classes")
def test_a_slow_tracker_that_works_through_old_figures_does_not_hang(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing, "MOST_WAITING", 2)
    Slow.released.clear()
    with Ledger(run.ledger, run.segments) as ledger:
        for version in range(1, 9):
            write(ledger, version, None)
    tracking = Tracking(run, ["slow"])
    for done in range(1, 5):
        tracking.advance(0.1)
        assert tracking.failures == {}
        Slow.released.set()
        for _ in range(500):
            if (run.path / "tracking/slow/versions").exists() and taken(run, "slow").count(" ") >= done:
                break
            time.sleep(0.01)
    tracking.advance(0.1)
    tracking.advance(0.1)
    assert tracking.failures == {"slow": "it hangs, and 3 figures wait for it"}
    Slow.released.set()


@pytest.mark.usefixtures("classes")
def test_a_tracker_that_wants_to_end_the_process_fails_alone(run: RunDirectory) -> None:
    tracking = Tracking(run, ["quitting", "listed"])
    with Ledger(run.ledger, run.segments) as ledger:
        write(ledger, 1, None)
        tracking.advance()
    tracking.close()
    assert tracking.failures == {"quitting": "no"}
    assert taken(run, "listed") == "1 "


def test_a_package_is_kept_from_printing_and_the_host_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talkative").mkdir()
    (tmp_path / "talkative" / "__init__.py").write_text("from . import part\n")
    (tmp_path / "talkative" / "part.py").write_text("def speak(text):\n    print(text)\n")
    monkeypatch.syspath_prepend(tmp_path)
    speak = importlib.import_module("talkative").part.speak
    with hushed("talkative"):
        speak("unwanted")
        thread = threading.Thread(target=print, args=("a line of the host",))
        thread.start()
        thread.join()
    speak("afterwards")
    assert capsys.readouterr().out.split("\n") == ["a line of the host", "afterwards", ""]
