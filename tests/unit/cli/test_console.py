"""Output on full disks: a line of standard error never ends a command, a lost result does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WARN_WITHOUT_ROOM = """
import resource
from barnraise.cli.console import note, warn
note("before")
usual = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))
warn("no room")
resource.setrlimit(resource.RLIMIT_FSIZE, usual)
note("after")
"""


def test_a_command_outlives_a_full_disk_under_its_standard_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stream:
        subprocess.run([sys.executable, "-c", WARN_WITHOUT_ROOM], stderr=stream, check=True)
    lines = log.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")


def test_a_result_without_room_is_an_error(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        command = "from barnraise.cli.console import say; say('the result')"
        ended = subprocess.run([sys.executable, "-c", command], stdout=full, stderr=subprocess.PIPE, check=False)
    assert ended.returncode != 0
    assert b"No space left" in ended.stderr
