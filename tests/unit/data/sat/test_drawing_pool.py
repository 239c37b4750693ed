"""Datasets that several processes draw: the same bytes as of one, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from barnraise.core.errors import DataError
from barnraise.data.sat import dataset as sat
from barnraise.data.sat import dimacs, generators
from barnraise.data.sat.blocks import BLOCK, BlockPlan, Blocks
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.drawing import Counts, Drawing
from barnraise.data.sat.drawing_pool import drawn_blocks
from barnraise.data.sat.options import SatOptions

from ....campaigns import some

TRAIL: dict[str, Any] = {
    "style": "trail", "heuristic": "lowest", "variables": (4, 5), "clause_ratio": (3.5, 5.0), "clause_lengths": (3, 3),
    "context": 128, "held_out": 20, "examples": 1200,
}  # fmt: skip
BANDS = [{"at_most": 0, "share": 0.4}, {"at_least": 1, "share": 0.5, "satisfiable": 0.5}]
KINDS: dict[str, dict[str, Any]] = {
    "shares, pairs, packed": {"backtracking": BANDS, "pairs": 0.1, "packing": True, "names": 7},
    "restated": {"style": "restated", "clause_ratio": 2.0, "clause_lengths": (1, 3)},
    "repeats": {"variables": (3, 3), "clause_ratio": 2.0, "clause_lengths": (2, 3), "balanced": False},
    "stages": {"examples": None, "tokens": 60_000, "stages": [{"after": 30_000, "variables": (6, 6)}]},
    "files": {"files": ["cnf"], "prompt": "literals", "variables": (1, 8), "clause_lengths": (1, 1), "balanced": False},
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the folder `cnf` of 60 formulas."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cnf").mkdir()
    rng = np.random.default_rng(0)
    for number in range(60):
        dimacs.write(generators.random_ksat(rng, 6 + number % 3), tmp_path / "cnf" / f"f{number:02d}.cnf")
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def helpers(process: psutil.Process | None = None) -> list[psutil.Process]:
    """The processes that draw formulas for a process."""
    found = (process or psutil.Process()).children()
    return [child for child in found if "barnraise.data.sat.drawing_process" in child.cmdline()]


def until(reached: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := reached()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("kind", some(("shares, pairs, packed", "files"), KINDS))
def test_the_bytes_do_not_depend_on_the_number_of_processes(kind: str, here: Path) -> None:
    options = SatOptions.of(**(TRAIL | KINDS[kind]))
    for processes in (1, 3):
        sat.build(here / str(processes), options, processes=processes)
    assert content(here / "1") == content(here / "3")
    assert helpers() == []


def plan(files: tuple[Formula, ...] | None = None) -> BlockPlan:
    options = SatOptions.of(**TRAIL)
    return BlockPlan(options, options.source, (0, 3, 0), files)


def test_processes_end_with_the_iterator() -> None:
    with closing(drawn_blocks(plan(), 2, 5)) as blocks:
        block = next(blocks)
        assert block is not None
        assert [one.key for one in block.unpacked()] == [one.key for one in Blocks(plan()).block(5)]
        assert len(helpers()) == 2
    assert helpers() == []


def test_processes_end_with_an_error_of_the_reader(here: Path) -> None:
    options = SatOptions.of(**TRAIL, backtracking=[{"at_least": 30, "share": 1.0}])
    with pytest.raises(DataError, match="no new example in 30000 formulas") as raised:
        sat.build(here / "data", options, processes=2)
    assert helpers() == [], f"also while the error and its frames live: {raised.tb}"


@pytest.mark.campaign
def test_a_killed_process_changes_no_example() -> None:
    said: list[str] = []

    def examples(processes: int) -> list[list[int]]:
        found: list[list[int]] = []
        drawing = Drawing(SatOptions.of(**TRAIL), processes, said.append)
        with closing(drawing.examples(drawing.options.source, (0, 3, 0), Counts(), 5 * BLOCK)) as drawn:
            for example in drawn:
                if len(found) == BLOCK and processes > 1:
                    helpers()[0].kill()
                found.append(example.ids.tolist())
        return found

    assert examples(4) == examples(1)
    assert len(said) == 1
    assert "the number of processes is now 2, not 4" in said[0]


def test_an_error_in_another_process_is_raised_in_this_one() -> None:
    unknown = (Formula(9, ((7, 8, 9),)),)  # no token of 5 variables
    with closing(drawn_blocks(plan(unknown), 2, 0)) as blocks:
        assert next(blocks) is None
    with pytest.raises(DataError, match="is no token of 5 variables"):
        list(Blocks(plan(unknown)).block(0))


SCRIPT = """
import sys
from pathlib import Path
from barnraise.data.sat import dataset
from barnraise.data.sat.options import SatOptions
options = SatOptions.of(style="trail", heuristic="lowest", examples=int(sys.argv[2]), held_out=10)
dataset.build(Path(sys.argv[1]), options, print, processes=2)
"""


def started(folder: Path, examples: int) -> subprocess.Popen[bytes]:
    (folder / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(folder / "script.py"), str(folder / "data"), str(examples)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_script_needs_no_guard_for_its_main_module(tmp_path: Path) -> None:
    script = started(tmp_path, 1500)
    out, err = script.communicate(timeout=60)
    assert (script.returncode, err) == (0, b"")
    assert out.count(b"held out") == 1, "no process runs the script again"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_a_script_that_is_interrupted(number: int, tmp_path: Path) -> None:
    script = started(tmp_path, 10_000_000)
    found = until(lambda: len(children := helpers(psutil.Process(script.pid))) == 2 and children)
    os.kill(script.pid, number)
    script.communicate(timeout=60)
    assert script.returncode != 0
    until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in found))
