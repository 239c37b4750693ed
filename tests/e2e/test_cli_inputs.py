"""Bad input to the real command line: exit code 2, one screen on stderr with value, limit and remedy, no traceback."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnraise.emulation import namespaces

SOUND = """
run: {name: tiny, dir: runs}
model: {architecture: gpt2, config: {hidden_size: 32, num_layers: 2, num_heads: 2}}
data: {kind: text, files: [story.txt], context: 32}
workers: [{name: a}, {name: b}]
training: {tokens: 100_000, batch_size: 4}
"""
SCREEN = 24

BAD_FILES = {
    "unknown key": (SOUND + "controller: {max_stalenes: 3}\n", "did you mean 'staleness.max'?"),
    "key of another section": (SOUND + "controller: {tokens: 3}\n", "it belongs under training"),
    "wrong type": (SOUND.replace("tokens: 100_000", "tokens: many"), "is 'many' (text), but must be a whole number"),
    "not YAML": ("run: [", "not YAML"),
    "bytes": ("\udcff\udcfe", "not UTF-8 text"),
    "empty": ("", "`barnraise init` writes"),
    "twice": (SOUND + "run: {}\n", "given twice, first on line 2"),
    "impossible rule": (
        SOUND.replace("batch_size: 4", "aggregation_rule: bulyan, bulyan_f: 2"),
        "bulyan with f=2 needs n >= 4f+3, here 11 nodes, but the run has 2 nodes; list more workers",
    ),
    "impossible mode": (SOUND.replace("batch_size: 4", "outer_optimizer: nesterov"), "in asynchronous mode"),
    "missing data": (SOUND.replace("story.txt", "stori.txt"), "did you mean 'story.txt'?"),
    "empty data": (SOUND.replace("story.txt", "empty.txt"), "hold 0 bytes"),
    "huge model": (SOUND.replace("hidden_size: 32", "hidden_size: 65536"), "GB are available; take a smaller model"),
    "unknown model": (SOUND.replace("gpt2", "gpt_ne0"), "did you mean 'gpt_neo'?"),
    "bad model": (SOUND.replace("num_heads: 2", "num_heads: 3"), "must be a multiple of the 3 attention heads"),
    "bad host": (SOUND + "controller: {host: 192.0.2.1}\n", "not an address of this machine"),
    "bad folder": (SOUND.replace("dir: runs", "dir: story.txt/runs"), "is a file; name another"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "story.txt").write_text("once upon a time\n" * 100)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "run.yaml").write_text(SOUND)
    return tmp_path


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        yield other.getsockname()[1]


def barnraise(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnraise.cli.main", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=os.environ | environment, timeout=120
    )


def assert_refused(ended: subprocess.CompletedProcess[str], message: str) -> None:
    assert message in ended.stderr
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) < SCREEN
    assert (ended.returncode, ended.stdout) == (2, "")


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_run_file(folder: Path, name: str) -> None:
    text, message = BAD_FILES[name]
    (folder / "run.yaml").write_text(text, errors="surrogateescape")
    assert_refused(barnraise(folder, "check", "run.yaml"), message)


def test_a_missing_run_file(folder: Path) -> None:
    assert_refused(barnraise(folder, "check", "rum.yaml"), "there is no run file rum.yaml; did you mean run.yaml?")


def test_a_folder_for_a_run_file(folder: Path) -> None:
    assert_refused(barnraise(folder, "check", "."), "is a folder; give the run file in it")


def test_a_port_that_is_taken(folder: Path, taken_port: int) -> None:
    (folder / "run.yaml").write_text(SOUND + f"controller: {{port: {taken_port}}}\n")
    assert_refused(barnraise(folder, "check", "run.yaml"), f"{taken_port} is taken by another program")


def test_train_refuses_what_check_refuses(folder: Path) -> None:
    (folder / "run.yaml").write_text(SOUND + "controller: {lease: 0.1}\n")
    refused = barnraise(folder, "check", "run.yaml")
    assert_refused(refused, "heartbeats are 0.4 s apart")
    assert barnraise(folder, "train", "run.yaml").stderr == refused.stderr
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("command", ["train", "simulate", "lab"])
def test_an_unknown_link_is_refused(folder: Path, command: str) -> None:
    if command == "lab" and (lack := namespaces.missing()):
        pytest.skip(f"no lab here: {lack}")
    refused = barnraise(folder, command, "run.yaml", "--network", "celular")
    assert_refused(refused, "unknown link preset 'celular'; did you mean 'cellular'?")
    refused = barnraise(folder, command, "run.yaml", "--network", "10mbit/50")
    assert_refused(refused, "figures as in 10mbit/50ms")
    assert not (folder / "runs").exists()


def test_a_lab_without_ns3(folder: Path) -> None:
    if lack := namespaces.missing():
        pytest.skip(f"no lab here: {lack}")
    if importlib.util.find_spec("ns") is not None:
        pytest.skip("ns-3 is installed")
    assert_refused(barnraise(folder, "lab", "run.yaml", "--ns3"), "pip install ns3")


def test_init_keeps_what_is_there(folder: Path) -> None:
    assert_refused(barnraise(folder, "init", "run.yaml"), "run.yaml exists, and is left as it is")
    assert (folder / "run.yaml").read_text() == SOUND


def test_a_usage_error(folder: Path) -> None:
    ended = barnraise(folder, "chek", "run.yaml")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Did you mean 'check'?" in ended.stderr


def test_a_sound_run_file(folder: Path) -> None:
    ended = barnraise(folder, "check", "run.yaml")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("run.yaml is sound")


def test_messages_are_text_whatever_the_locale(folder: Path) -> None:
    (folder / "run.yaml").write_text(SOUND + "controller: {hóst: 1}\n", encoding="utf-8")
    ended = barnraise(folder, "check", "run.yaml", LC_ALL="C", PYTHONIOENCODING="ascii:strict")
    assert_refused(ended, "did you mean 'host'?")


def test_a_reader_that_goes_away(folder: Path) -> None:
    """As in `barnraise check run.yaml | head -0`: no message about it, and the command's own exit code."""
    command = [sys.executable, "-m", "barnraise.cli.main", "check", "run.yaml"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("words", "at", "expected"),
    [("barnraise st", 1, {"standby", "status", "story"}), ("barnraise try --dr", 2, {"--draw"})],
)
def test_a_shell_completes_commands_and_options(folder: Path, words: str, at: int, expected: set[str]) -> None:
    asked = {"_BARNRAISE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
    assert set(barnraise(folder, **asked).stdout.split()) == expected


def test_trying_a_folder_that_is_no_run(folder: Path) -> None:
    assert_refused(barnraise(folder, "try", "nowhere"), "there is no run directory nowhere")
    several = barnraise(folder, "try", "nowhere", "text", "--draw")
    assert_refused(several, "give one of PROMPT, --file, --formula and --draw")
