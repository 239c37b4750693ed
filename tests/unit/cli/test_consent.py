"""The consent of an owner whose files stay with a machine."""

from __future__ import annotations

import io

import pytest

from barnraise.cli import consent
from barnraise.core.errors import InputError
from barnraise.core.sites import OwnFiles, Releases
from barnraise.worker.releases import SENT


def test_releases_are_read_from_names_and_settings() -> None:
    own = consent.own_files(["a.txt", "b"], ["loss=off", "held_out=each"])
    assert own == OwnFiles(("a.txt", "b"), Releases(loss="off", held_out="each"))
    assert consent.own_files([], []) is None


@pytest.mark.parametrize("text", ["loss", "loss=never", "row=off", "telemetry=noised", "="])
def test_an_unknown_release_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(InputError, match=r"known: loss=exact\|noised\|off"):
        consent.own_files(["a.txt"], [text])


def test_a_release_without_files_is_refused() -> None:
    with pytest.raises(InputError, match="--data"):
        consent.own_files([], ["loss=off"])


def test_all_that_is_sent_is_shown() -> None:
    text = consent.shown(OwnFiles(("a.txt",), Releases(telemetry="off")))
    assert all(item.what in text for item in SENT)
    assert "(telemetry: off)" in text
    assert "a.txt" in text


def test_no_terminal_and_no_yes_is_no_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(InputError, match="--yes"):
        consent.ask(OwnFiles(("a.txt",)), yes=False)
    consent.ask(OwnFiles(("a.txt",)), yes=True)


@pytest.mark.parametrize(("answer", "agreed"), [("y", True), ("n", False)])
def test_a_terminal_is_asked(answer: str, agreed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda text, err: asked.append(text) or answer == "y")
    if agreed:
        consent.ask(OwnFiles(("a.txt",)), yes=False)
    else:
        with pytest.raises(InputError, match="nothing was sent"):
            consent.ask(OwnFiles(("a.txt",)), yes=False)
    assert len(asked) == 1
