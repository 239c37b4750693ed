"""Hostile names, reasons and claims in a ledger are harmless wherever a reader shows them.

The ledger has such a text in each field of text of each decision and note, whether an outsider reaches it today or not.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnraise.account import account as accounts
from barnraise.account.account import AccountReader
from barnraise.account.alerts import Watch
from barnraise.account.chronicle import Chronicle, Happening, of_note
from barnraise.account.moment import RunMoment
from barnraise.account.present import TRAINING, Present, StandbyPresent
from barnraise.account.reducer import RowFeed
from barnraise.account.report import write_report
from barnraise.account.spans import Spans
from barnraise.account.vitals import vitals_of
from barnraise.assembly.alerting import mail_of, message_of
from barnraise.cli import console
from barnraise.cli.main import main
from barnraise.cli.panel import Figures, Heading, Moment, PanelProgress, draw, line
from barnraise.cli.screen import Screen
from barnraise.cli.view import JsonView, PlainView
from barnraise.config.watch_sections import AlertsSection
from barnraise.controller.shell.warnings import warning_of
from barnraise.core.types import NodeProfile
from barnraise.dashboard.metrics import exposition
from barnraise.dashboard.source import FolderSource
from barnraise.ledger import (
    Change,
    Decision,
    Ledger,
    LedgerView,
    NodeChanged,
    Noted,
    RunDirectory,
    VersionClosed,
    VersionMade,
    notes,
)
from barnraise.ledger.note import Note

from ..decisions import assigned, judged
from ..hostile import EVIL, LARGE, require_harmless
from ..unit.cli.test_status import BEGINNING, make_run

NAMES = (EVIL, "ann\u200b", "ann\u202e", "ann")
"""Names of nodes; the last three look alike."""


def value_of(kind: Any, text: str) -> Any:
    """A value of a field's type, with `text` for each text in it."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return value_of(arguments[0], text)
    if origin in (typing.Union, types.UnionType):
        return value_of(next(one for one in arguments if one is not type(None)), text)
    if origin is typing.Literal:
        return arguments[0]
    if origin is tuple:
        return (value_of(arguments[0], text),) * (200 if len(text) < 10_000 else 2)
    if origin is dict:
        return {text: value_of(arguments[1], text)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(**{field.name: value_of(field.type, text) for field in msgspec.structs.fields(kind)})
    plain = {str: text, int: 1, float: 1.0, bool: True, Any: text}
    return plain[kind]


def notes_with(text: str) -> Iterator[Note]:
    """A note of each kind, with `text` wherever it has one."""
    for kind in Note.__subclasses__():
        if kind not in (notes.Unknown, notes.Started, notes.RunFile, notes.Finished, notes.Evaluated, notes.Resumed):
            yield value_of(kind, text)
    yield notes.RunFile(text, {})
    yield notes.Unknown(text, {text: text, "a": [text]})


def rows_with(text: str) -> list[Decision]:
    """Rows of a run in which an outsider has written `text` wherever there is one."""
    rows: list[Decision] = []
    for name in NAMES:
        rows += [
            NodeChanged(10.0, name, Change.ENROLLED, text[:160], key=text[:160], signer=text[:160], owner=text[:160]),
            NodeChanged(10.0, name, Change.JOINED, text, session=1, profile=NodeProfile(device=text[:100])),
        ]
    rows += [
        assigned(11.0, 10, NAMES[0], kind=text),
        judged(12.0, 10, NAMES[0], verdict="refused", reason=text, digest="", result=text),
        assigned(12.0, 11, NAMES[1]),
        judged(12.5, 11, NAMES[1], digest=text, signature=text),
        VersionClosed(13.0, 2, (11,), 1, 400, text),
        VersionMade(13.5, 2, text, 40),
        assigned(14.0, 12, NAMES[2]),
        judged(14.5, 12, NAMES[2], verdict="refused", reason=f"{text} again", digest=""),
        assigned(14.5, 13, NAMES[0]),
    ]
    for note in notes_with(text):
        rows.append(Noted(15.0, note, NAMES[0]))
    rows += [NodeChanged(16.0, NAMES[0], change, text) for change in Change if change.gone]
    return [*rows, Noted(17.0, notes.Finished(text))]


@pytest.fixture(scope="module", params=["hostile", "large"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of a hostile name, whose ledger is full of hostile texts."""
    made = make_run(tmp_path_factory.mktemp("runs"), BEGINNING)
    with Ledger(made.ledger, made.segments, run="barn") as ledger:
        ledger.commit(rows_with(EVIL if request.param == "hostile" else LARGE), {11: b"p"})
    hostile = made.path.with_name("<b>\u202e|x\x1b[2J`#\n$\\frac{$")
    made.path.rename(hostile)
    return RunDirectory(hostile)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The output of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    found = capsys.readouterr()
    assert ended.value.code == 0, found.err
    assert "Traceback" not in found.err
    require_harmless(found.err)
    return found.out


def require_json(text: str) -> list[Any]:
    """Fail unless each line is JSON in ASCII; return the values."""
    assert text.isascii()
    return [json.loads(one) for one in text.splitlines()]


@pytest.mark.parametrize(
    "arguments",
    [("status",), ("events", "--last", "0"), ("events", "--kind", "all", "--last", "0")],
    ids=" ".join,
)
def test_a_command_shows_a_hostile_run_harmlessly(
    run: RunDirectory, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    told = said(capsys, arguments[0], str(run.path), *arguments[1:])
    require_harmless(told)
    assert "ann" in told
    for value in require_json(said(capsys, arguments[0], str(run.path), *arguments[1:], "--json")):
        for text in [value["text"]] if "text" in value else [event["text"] for event in value["events"]]:
            require_harmless(text)
            assert "\n" not in text


@pytest.mark.parametrize("about", [*NAMES, "10", "11", "12"], ids=ascii)
def test_a_story_is_harmless(run: RunDirectory, about: str, capsys: pytest.CaptureFixture[str]) -> None:
    require_harmless(said(capsys, "story", str(run.path), about))
    for value in require_json(said(capsys, "story", str(run.path), about, "--json")):
        require_harmless(value["text"])
        assert "\n" not in value["text"]


def test_an_unknown_name_is_told_harmlessly(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["story", str(run.path), EVIL + "x"], ["events", str(run.path), "--node", EVIL + "x"]):
        assert main(command) == 2
        told = capsys.readouterr().err
        require_harmless(told)
        assert told.count("\n") <= 3, told


def test_a_list_of_runs_is_harmless(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "top", str(run.path.parent), "--once")
    require_harmless(told)
    assert len(told.splitlines()) == 2
    (row,) = require_json(said(capsys, "top", str(run.path.parent), "--json"))
    assert row["state"] == "finished", row


def unfenced(report: str) -> str:
    """A report without its blocks of code."""
    kept, fence = list[str](), ""
    for one in report.splitlines():
        opened = re.match("`{3,}", one)
        if fence:
            fence = "" if one == fence else fence
        elif opened:
            fence = opened.group()
        else:
            kept.append(one)
    assert not fence, "a block that does not end"
    return "\n".join(kept)


def test_a_report_is_harmless(run: RunDirectory) -> None:
    text = write_report(accounts.read(run), None).read_text()
    require_harmless(text, 100_000)
    assert len(text) < 1_000_000
    told = unfenced(text)
    assert "<" not in told
    assert re.findall(r"(?<!\\)\[", told) == ["[", "["], "its two pictures"
    assert len(re.findall("^#", told, re.MULTILINE)) == text.count("\n## ") + 1
    table: list[int] = []
    for one in told.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", one)) if one.startswith("|") else 0
        assert not cells or not table or table[-1] in (0, cells), one
        table.append(cells)


def metrics(run: RunDirectory) -> bytes:
    source = FolderSource(run)
    try:
        return exposition(source.look())
    finally:
        source.close()


def test_metrics_are_sound_and_each_series_is_there_once(run: RunDirectory) -> None:
    text = metrics(run).decode()
    require_harmless(text)
    seen = set[tuple[str, frozenset[tuple[str, str]]]]()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.name.startswith("barnraise_")
            assert not sample.name.startswith("barnraise_forged")
            key = sample.name, frozenset(sample.labels.items())
            assert key not in seen
            seen.add(key)
            assert all(len(value) <= 64 for value in sample.labels.values())
    assert len(seen) < 500


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's package prometheus) is not installed")
def test_promtool_accepts_the_metrics(run: RunDirectory) -> None:
    checked = subprocess.run(["promtool", "check", "metrics"], input=metrics(run), capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def happenings(run: RunDirectory) -> list[Happening]:
    chronicle = Chronicle()
    with LedgerView(run.ledger) as view:
        RowFeed(view, [chronicle]).advance()
    return chronicle.happenings


def test_the_log_of_a_run_is_harmless(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    found = happenings(run)
    assert len(found) > 20
    for one in found:
        require_harmless(one.text)
        assert "\n" not in one.text
        assert "\n" not in one.kind
        PlainView()._tell(of_note([one]))
        JsonView()._tell([one])
    told = capsys.readouterr()
    require_harmless(told.err)
    assert len(require_json(told.out)) == len(found)


def test_the_picture_of_a_run_is_harmless(run: RunDirectory) -> None:
    source = FolderSource(run)
    rows = source.look().rows
    source.close()
    moment = Moment(
        Heading(EVIL, "asynchronous", 9.0, EVIL, EVIL),
        PanelProgress(10, 1000, 1.0),
        Figures(1, 2, 1, 1, 1, 0, 1, 1),
        [(1, 2.0)],
        rows,
        happenings(run),
    )
    out = io.StringIO()
    Screen(file=out, width=100).print(draw(moment))
    require_harmless(out.getvalue())
    require_harmless(line(moment))


@pytest.mark.parametrize("text", [EVIL, LARGE], ids=["hostile", "large"])
def test_warnings_are_harmless(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for note in notes_with(text):
        if warning := warning_of(Noted(1.0, note, text)):
            require_harmless(warning)
            assert "\n" not in warning
            console.warn(warning)
    require_harmless(capsys.readouterr().err)


def test_alerts_are_harmless(run: RunDirectory) -> None:
    with AccountReader(run) as reader:
        found, over_time = reader.read(), reader.over_time
    present = Present(9.0, TRAINING, EVIL, (), {}, 0, 0, StandbyPresent())
    watch = Watch()
    for now in (0.0, 1000.0, 2000.0):
        watch.look(vitals_of(RunMoment(found, over_time, 1000, True, present), now))
    alerts = list(watch.firing.values())
    assert {"no_progress", "over"} <= watch.firing.keys()
    for text in (EVIL, run.path.name):
        for alert in message_of(text, alerts, 0.0)["alerts"]:
            for value in [*alert["labels"].values(), *alert["annotations"].values()]:
                require_harmless(value)
                assert "\n" not in value
        mail = mail_of(text, alerts, AlertsSection(email_to=["host@example.org"]))
        require_harmless(str(mail["Subject"]))
        require_harmless(mail.get_content())


def test_spans_are_harmless(run: RunDirectory) -> None:
    spans = Spans("barn")
    with LedgerView(run.ledger) as view:
        RowFeed(view, [spans]).advance()
    found = spans.take()
    assert {one.name for one in found} >= {"train", "version"}
    for one in found:
        for text in (one.name, one.failed, *(value for value in one.attributes.values() if isinstance(value, str))):
            require_harmless(text, 200)
            assert "\n" not in text


def test_a_status_from_afar_is_harmless(run: RunDirectory) -> None:
    from barnraise.account.run_status import RunStatus, encoded_from_afar, printable_of
    from barnraise.cli.status import _line, _lines

    heard = msgspec.json.decode(encoded_from_afar(accounts.read(run), 1000), type=RunStatus)
    shown = printable_of(msgspec.structs.replace(heard, run=EVIL, state=EVIL, finished=LARGE, facts=((EVIL, LARGE),)))
    require_harmless(_line(shown))
    for one in _lines(shown):
        require_harmless(one.plain)


def test_a_verification_is_harmless(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(run.path)])
    assert ended.value.code == 1, "it is no run that was computed"
    found = capsys.readouterr()
    require_harmless(found.out + found.err)
    assert "Traceback" not in found.err
