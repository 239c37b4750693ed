"""The run directory: made, recognised, locked."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from barnraise.core.errors import RunDirectoryError
from barnraise.ledger import Ledger, RunDirectory

from ...decisions import assigned, judged

NOON = datetime(2026, 1, 31, 12, 0, 0)

HOLDER = """
import sys
from pathlib import Path
from barnraise.ledger import RunDirectory
lock = RunDirectory.open(Path(sys.argv[1])).lock()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create("sat-neo", tmp_path / "runs", now=NOON)
    run.run_file.write_text("run: {name: sat-neo}\n")
    Ledger(run.ledger, run.segments).close()
    return run


def start_holder(run: RunDirectory) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_run_is_made_with_its_folders(tmp_path: Path) -> None:
    run = RunDirectory.create("sat-neo", tmp_path / "deep" / "runs", now=NOON)
    assert run.path == tmp_path / "deep" / "runs" / "sat-neo-20260131-120000"
    assert sorted(path.name for path in run.path.iterdir()) == [
        "checkpoints", "data", "keys", "logs", "requests", "segments",
    ]  # fmt: skip


def test_files_of_a_run_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    """Files of a run can be copied elsewhere, where no folder protects them."""
    before = os.umask(0o022)
    try:
        run = RunDirectory.create("sat-neo", tmp_path / "runs", now=NOON)
        with run.lock():
            run.write(run.run_file, b"run: {name: sat-neo}")
            (run.path / "model").mkdir()
            (run.path / "model" / "config.json").write_text("{}")
            with Ledger(run.ledger, run.segments) as ledger:
                ledger.commit([assigned(1.0, 1, "a"), judged(2.0, 1, "a")], {1: b"payload"})
                made = [run.path, *run.path.rglob("*")]
                assert len(made) >= 14, "with SQLite's write-ahead log"
                assert [path for path in made if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
        (tmp_path / "later").touch()
        assert stat.S_IMODE((tmp_path / "later").stat().st_mode) == 0o644, "the umask is as it was"
    finally:
        os.umask(before)


def test_a_run_and_its_lock_are_closed_to_other_users(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run = RunDirectory.create("sat-neo", tmp_path / "runs", now=NOON)
        run.lock_file.touch(0o644)
        run.lock().release()
    finally:
        os.umask(before)
    for folder in (run.path, *run.path.iterdir()):
        assert stat.S_IMODE(folder.stat().st_mode) == (0o700 if folder.is_dir() else 0o600), folder


def test_runs_of_one_second_are_numbered(tmp_path: Path) -> None:
    names = [RunDirectory.create("r", tmp_path, now=NOON).path.name for _ in range(3)]
    assert names == ["r-20260131-120000", "r-20260131-120000-2", "r-20260131-120000-3"]


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 65])
def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunDirectoryError, match="cannot name a run"):
        RunDirectory.create(name, tmp_path)


def test_a_base_that_cannot_hold_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for base in (tmp_path / "file", tmp_path / "file" / "runs", Path("/proc/runs")):
        with pytest.raises(RunDirectoryError, match=r"cannot make a run directory in .*: .*; name another folder"):
            RunDirectory.create("r", base)


def test_a_run_is_opened(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.path.parent)
    opened = RunDirectory.open(Path(run.path.name))
    monkeypatch.chdir("/")
    assert opened.run_file.read_text() == "run: {name: sat-neo}\n"


def test_a_folder_that_is_no_run_is_refused_with_a_hint(run: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"there is no run directory .*nowhere"):
        RunDirectory.open(tmp_path / "nowhere")
    with pytest.raises(RunDirectoryError, match=r"run\.yaml is a file, not a run directory"):
        RunDirectory.open(run.run_file)
    with pytest.raises(
        RunDirectoryError, match=r"no run\.yaml and no ledger\.sqlite; it holds runs, the newest is .*sat-neo-2026"
    ):
        RunDirectory.open(run.path.parent)
    run.run_file.unlink()
    with pytest.raises(RunDirectoryError, match=r"it has no run\.yaml; give the folder"):
        RunDirectory.open(run.path)


def test_a_key_is_for_its_owner_only(run: RunDirectory) -> None:
    for secret in (b"first", b"second"):
        path = run.write_key("controller", secret)
        assert path.read_bytes() == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(run.keys.iterdir()) == [path]


def test_a_second_process_is_told_which_process_holds_the_run(run: RunDirectory) -> None:
    holder = start_holder(run)
    try:
        assert run.holder() == holder.pid
        with pytest.raises(RunDirectoryError, match=rf"in use by process {holder.pid}: .*kill -INT {holder.pid}"):
            run.lock()
    finally:
        holder.communicate()
    assert run.holder() is None
    run.lock().release()


def test_the_lock_dies_with_its_process(run: RunDirectory) -> None:
    holder = start_holder(run)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert run.holder() is None
    with run.lock():
        assert run.holder() == os.getpid()
        with pytest.raises(RunDirectoryError, match=f"in use by process {os.getpid()}"):
            run.lock()
    assert run.holder() is None


def test_a_child_that_outlives_the_controller_does_not_keep_the_lock(run: RunDirectory) -> None:
    """The controller forks one child and executes another; it dies, they stay, and the run is free."""
    script = HOLDER.replace(
        "sys.stdin.read()",
        "import os, subprocess; pid = os.fork()\n"
        "if pid == 0: os.write(1, b'forked\\n'); sys.stdin.read(); os._exit(0)\n"
        "subprocess.Popen(['sh', '-c', 'echo executed; read line']); os.waitpid(pid, 0)",
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = {process.stdout.readline().strip() for _ in range(3)}
    assert lines == {"locked", "forked", "executed"}
    assert run.holder() == process.pid
    process.kill()
    process.wait()
    assert run.holder() is None
    process.communicate()


def test_a_run_that_was_never_locked_has_no_holder(run: RunDirectory) -> None:
    assert run.holder() is None


def test_a_file_appears_whole_and_under_its_name_alone(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Path]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        seen.append(sorted(run.requests.glob("*.json")))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    path = run.write_private(run.requests / "1.json", b"{}")
    assert seen[0] == []
    assert sorted(run.requests.glob("*.json")) == [path]


@pytest.mark.parametrize("old", [False, True], ids=["new", "made before"])
def test_a_lock_on_a_read_only_descriptor_blocks_no_process(run: RunDirectory, old: bool) -> None:
    """An flock of a lock file that others could read; what a stranger holds must not block a resume."""
    if old:
        run.lock_file.touch(mode=0o644)
    else:
        run.lock().release()
    with run.lock_file.open("rb") as stranger:
        fcntl.flock(stranger, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert run.holder() is None
        with run.lock():
            assert run.holder() == os.getpid()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: another user looks at the run")
def test_another_user_cannot_open_the_lock(run: RunDirectory) -> None:
    """Not even in a folder that was made before, which others may look into."""
    script = "import os, sys; os.chdir(sys.argv[1]); os.setuid(65534); [open(name).close() for name in sys.argv[2:]]"
    run.lock_file.touch(mode=0o644)
    run.path.chmod(0o755)
    with run.lock():
        for names, allowed in ((["run.yaml"], True), (["run.yaml", "lock"], False)):
            command = [sys.executable, "-c", script, str(run.path), *names]
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            assert (found.returncode == 0) == allowed, found.stderr
        assert "Permission denied: 'lock'" in found.stderr


def test_a_run_is_its_owners_alone(tmp_path: Path) -> None:
    run = RunDirectory.create("r", tmp_path, now=NOON)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700


def test_asking_for_the_holder_of_a_run_does_not_release_the_lock(run: RunDirectory) -> None:
    with run.lock():
        for _ in range(3):
            assert run.holder() == os.getpid()
        with pytest.raises(RunDirectoryError, match="in use by process"):
            run.lock()
        assert start_looker(run) == str(os.getpid())


def start_looker(run: RunDirectory) -> str:
    """Return the holder of the run, as another process sees it."""
    script = "import sys; from pathlib import Path; from barnraise.ledger import RunDirectory as R\n"
    script += "print(R.open(Path(sys.argv[1])).holder())"
    found = subprocess.run([sys.executable, "-c", script, run.path], capture_output=True, text=True, check=True)
    return found.stdout.strip()
