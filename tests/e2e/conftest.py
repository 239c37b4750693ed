"""Real processes: the barnraise command line as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .forkserver import Forked, forkserver

BARNRAISE = [sys.executable, "-m", "barnraise.cli.main"]


class Process:
    """A barnraise process whose standard error is read as it comes.

    It is a fork of the tests' forkserver, or, behind a `prefix` such as [], a process of `python -m`.
    """

    def __init__(self, arguments: list[str], cwd: Path, prefix: list[str] | None = None) -> None:
        self.log = cwd / f"{arguments[0]}-{time.monotonic_ns()}.log"
        self.out = self.log.with_suffix(".out")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "BARNRAISE_TRACEBACK": "1"}
        self.popen: subprocess.Popen[bytes] | Forked
        for file in (self.log, self.out):
            file.touch()  # the fork opens them later than `text` may read them
        if prefix is None:
            self.popen = forkserver().start(arguments, cwd, environment, self.out, self.log)
            return
        with self.log.open("wb") as err, self.out.open("wb") as out:
            self.popen = subprocess.Popen(
                [*prefix, *BARNRAISE, *arguments], cwd=cwd, stdout=out, stderr=err, env=environment
            )

    def text(self) -> str:
        return self.log.read_text("utf-8", "replace") + self.out.read_text("utf-8", "replace")

    def wait_for(self, condition: Callable[[str], Any], seconds: float = 120.0) -> Any:
        """The first true value of `condition(text so far)`; fails with the text when the process ends before."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended = self.popen.poll() is not None
            if found := condition(self.text()):
                return found
            assert not ended, f"ended with {self.popen.returncode}:\n{self.text()}"
            time.sleep(0.05)
        raise AssertionError(f"not in {seconds} s:\n{self.text()}")

    def wait(self, seconds: float = 240.0) -> int:
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds} s:\n{self.text()}") from None

    def kill(self) -> None:
        """kill -9."""
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()

    def json(self) -> dict[str, Any]:
        lines = self.out.read_text("utf-8").splitlines()
        assert lines, self.text()
        result: dict[str, Any] = json.loads(lines[-1])
        return result


@pytest.fixture
def barnraise(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts barnraise processes in `tmp_path`; ends those that are left."""
    started: list[Process] = []

    def start(*arguments: str, cwd: Path | None = None, prefix: list[str] | None = None) -> Process:
        started.append(Process(list(arguments), cwd or tmp_path, prefix))
        return started[-1]

    yield start
    for process in started:
        if process.popen.poll() is None:
            process.kill()


@pytest.fixture
def run_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small run file over a text of its own; keyword arguments replace whole sections."""

    def write(**sections: Any) -> Path:
        text = tmp_path / "text.txt"
        lines = [f"{a} plus {b} is {a + b}, and {b} times {a} is {a * b}.\n" for a in range(60) for b in range(60)]
        text.write_text("".join(lines))
        content: dict[str, Any] = {
            "run": {"name": "small", "dir": str(tmp_path / "runs")},
            "model": {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}},
            "data": {"kind": "text", "files": [str(text)], "context": 64},
            "workers": [{"name": "one", "speed": 2.0}, {"name": "two", "speed": 1.0}],
            "training": {"tokens": 120_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003},
            "controller": {"evaluations": 4, "evaluation_rows": 16, "checkpoint_seconds": 1.0},
        }
        content.update(sections)
        path = tmp_path / "run.yaml"
        path.write_text(json.dumps(content))
        return path

    return write
