"""Names, reasons and errors are safe to show, whatever text they hold.

A terminal obeys nothing in them, a page shows them as text, and they are short.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from rich.live import Live

from barnraise.account import charts, nodes, run_status, story
from barnraise.account.account import assignments, read
from barnraise.account.links import LinkUse
from barnraise.account.report import write_report
from barnraise.assembly.invites import open_book
from barnraise.cli import console, panel, tables
from barnraise.cli.main import main
from barnraise.cli.screen import Screen
from barnraise.controller.shell.warnings import warning_of
from barnraise.core.types import NodeProfile
from barnraise.ledger import Decision, LedgerView, NodeChanged, Noted, RunDirectory, VersionClosed, notes
from barnraise.transport import Invite, Keys
from barnraise.trust.roles import wrong_invite
from barnraise.verification.certificate import Certificate, CertificatePart, CheckedMarks
from barnraise.verification.check import CheckFinding, Unchecked

from ..decisions import assigned, judged
from ..unit.cli.test_status import make_run

PIECES = (
    "\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "\x9b31m", "\u202egnp", "\u2066x\u2069", "\u200f", "\nerror: forged\n",
    "\r\n", "\u2028", "\x85", "\x0b", "\t", "\x00", "\x7f", "<script>alert(1)</script>", "<img src=x onerror=y>",
    "[a](javascript:alert(1))", "![i](http://e)", "`code`", "``` ", "| a | b |", "[red]x[/red]", "[/]", r"$\frac$",
    "$$", r"\(", "%s{0}{node}", "\ud800", "😀", "# head", "--json", "../..", "&lt;", "'", '"',
)  # fmt: skip
HUGE = "A" * 1_000_000
RUN_FILE = "## Run file"
"""The host's own words follow this heading, in a fence."""

SHORTEST_HUGE = 1000
"""The number of letters in a row that no output shows."""

texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=12), min_size=1, max_size=6).map("".join)


def stored(text: str) -> str:
    """Return the text as a ledger can hold it, which another program may have written; a huge text is cut.

    SQLite may end the text at a zero byte.
    """
    return text[:20_000].replace("\x00", "").encode("utf-8", "replace").decode()


def a_run(folder: Path, text: str) -> RunDirectory:
    """A run in which everything that can be text is `text`."""
    said = stored(text)
    found: list[Decision] = [
        Noted(0.0, notes.Started(digest="ab" * 32, run=said)),
        NodeChanged(1.0, said, "enrolled", said, key="a"),
        NodeChanged(1.5, said, "joined", said, session=1, profile=NodeProfile(device=said[:120])),
        assigned(2.0, 1, said),
        judged(6.0, 1, said),
        assigned(6.0, 2, said),
        judged(7.0, 2, said, verdict="refused", reason=said),
        assigned(7.0, 3, said),
        VersionClosed(7.5, 1, (1,), 1, 400, said),
    ]
    found += [Noted(8.0, note, said) for note in all_notes(said)]
    found += [NodeChanged(9.0, said, "left", said), NodeChanged(9.5, "other", "enrolled", "", key="b")]
    run = make_run(folder, found)
    invite = Invite.create("h", 1, "r", Keys.generate().public, now=0.0, lifetime=1e9, role=said)
    with open_book(run) as book:
        book.add(invite)
    return run


def all_notes(said: str) -> Iterator[notes.Note]:
    """Yield one note of each kind that holds nothing but `said`, and one of an unknown kind."""
    for kind in notes.Note.__subclasses__():
        fields = {field.name: value_of(field.type, said) for field in msgspec.structs.fields(kind)}
        yield kind(**fields) if kind is not notes.Unknown else notes.Unknown(f"a {said}")


def value_of(hint: Any, said: str) -> Any:
    if hint is str:
        return said
    if hint in (int, float, bool):
        return hint(1)
    if "dict" in str(hint):
        return {}
    return () if "tuple" in str(hint) else None


def ran(*arguments: str) -> str:
    """Return the output of a command, on both streams."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), contextlib.suppress(SystemExit):
        main(list(arguments))
    return out.getvalue()


def drawn(*renderables: Any) -> str:
    """Return the text that a terminal gets, without colours and moves of the cursor, which are the console's own."""
    out = io.StringIO()
    screen = Screen(file=out, force_terminal=True, width=120, height=40, color_system=None, legacy_windows=False)
    for renderable in renderables:
        screen.print(renderable, soft_wrap=True)
    return out.getvalue()


def live(renderable: Any) -> str:
    out = io.StringIO()
    screen = Screen(file=out, force_terminal=True, width=120, height=40, color_system=None)
    with Live(console=screen, auto_refresh=False) as picture:
        picture.update(renderable, refresh=True)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "")


def moment(run: RunDirectory, text: str) -> panel.Moment:
    account = read(run)
    rows = nodes.recorded(account.nodes, running=True, finished=False)
    return panel.Moment(
        panel.Heading(stored(text), "mode", 1.0, stored(text), stored(text)),
        panel.PanelProgress(1, 10, 1.0),
        panel.Figures(1, 1, 1, 1, 1, 1, 1, 1),
        [(0, 1.0)],
        rows,
        account.happenings,
        [LinkUse(stored(text), 1.0, 1.0, None, None)],
    )


def certificate(text: str) -> Certificate:
    part = CertificatePart(text, text, {text: 1}, [CheckFinding(text, text, text, text, text)], [Unchecked(text, text)])
    return Certificate(text, text, "not sound", False, {text: 1}, CheckedMarks(1, "", ""), [part], 1.0, "now")


def warned(text: str) -> str:
    out = io.StringIO()
    with redirect_stderr(out):
        for note in all_notes(stored(text)):
            if said := warning_of(Noted(1.0, note, stored(text))):
                console.warn(said)
        console.fail(wrong_invite(stored(text)))
    return out.getvalue()


def from_afar(run: RunDirectory) -> str:
    told = msgspec.json.decode(run_status.encoded_from_afar(read(run), 1000), type=run_status.RunStatus)
    heard = run_status.printable_of(told)
    return "\n".join([heard.run, heard.state, *(f"{a}: {b}" for a, b in heard.facts), *(e.text for e in heard.events)])


TERMINAL: dict[str, Callable[[RunDirectory, str], str]] = {
    "status": lambda run, text: ran("status", str(run.path)),
    "status --json": lambda run, text: ran("status", str(run.path), "--json"),
    "story of a node": lambda run, text: ran("story", str(run.path), "--", stored(text)),
    "story of an assignment": lambda run, text: ran("story", str(run.path), "2"),
    "story of nobody": lambda run, text: ran("story", str(run.path), "--", f"{text}nobody"),
    "revoke": lambda run, text: ran("revoke", str(run.path), "--", f"{text}nobody"),
    "invites": lambda run, text: ran("invites", str(run.path)),
    "invite": lambda run, text: ran("invite", str(run.path), "--role", text),
    "invite for a time": lambda run, text: ran("invite", str(run.path), "--expires", text),
    "join": lambda run, text: ran("join", "--", f"barnraise://{text}"),
    "check": lambda run, text: ran("check", "--", f"./{text[:100]}".replace("\n", " ")),
    "warnings": lambda run, text: warned(text),
    "the live view": lambda run, text: drawn(panel.draw(moment(run, text))),
    "the live view, drawn again": lambda run, text: live(panel.draw(moment(run, text))),
    "the view in lines": lambda run, text: noted(panel.line(moment(run, text))),
    "links": lambda run, text: drawn(*tables.use_table([LinkUse(stored(text), 1.0, 1.0, None, None)])),
    "from afar": lambda run, text: from_afar(run),
    "what happened": lambda run, text: "\n".join(one.text for one in happenings(run)),
    "stories": lambda run, text: "\n".join(one.text for one in stories(run, stored(text))),
}
PAGES: dict[str, Callable[[RunDirectory, str], str]] = {
    "report": lambda run, text: report(run),
    "certificate": lambda run, text: certificate(text).page(),
}


def noted(text: str) -> str:
    out = io.StringIO()
    with redirect_stderr(out):
        console.note(text)
    return out.getvalue()


def happenings(run: RunDirectory) -> Any:
    return read(run).happenings


def stories(run: RunDirectory, node: str) -> Any:
    with LedgerView(run.ledger) as view:
        return [*story.of_node(view, node), *story.of_assignment(view, 1), *story.of_assignment(view, 2)]


def report(run: RunDirectory) -> str:
    return write_report(read(run), None).read_text("utf-8")


@cache
def lines_of(printer: Callable[[RunDirectory, str], str]) -> int:
    """Lines that it writes of a run in which all names are harmless."""
    with tempfile.TemporaryDirectory() as folder:
        return printer(a_run(Path(folder), "ann"), "ann").partition(RUN_FILE)[0].count("\n")


def harmless(text: str, name: str) -> None:
    bad = sorted({letter for letter in text if not letter.isprintable() and letter != "\n"})
    assert not bad, f"{name} has {[f'U+{ord(letter):04X}' for letter in bad]}"
    assert "--json" in name or "A" * SHORTEST_HUGE not in text, f"{name} shows all of a text without an end"
    text.encode()


@pytest.mark.parametrize("name", TERMINAL)
@settings(max_examples=10, phases=(Phase.explicit, Phase.generate))
@given(text=texts)
@example(text="".join(PIECES))
@example(text=HUGE)
@example(text=f"ann{PIECES[6]}")
def test_text_from_other_nodes_cannot_control_the_terminal(name: str, text: str) -> None:
    printer = TERMINAL[name]
    with tempfile.TemporaryDirectory() as folder:
        shown = printer(a_run(Path(folder), text), text)
    harmless(shown, name)
    if "--json" in name:
        json.loads(shown)
    assert "error: forged" not in map(str.strip, shown.splitlines()), f"{name} has a line that somebody else wrote"


@pytest.mark.parametrize("name", PAGES)
@settings(max_examples=5, phases=(Phase.explicit, Phase.generate))
@given(text=texts)
@example(text="".join(PIECES))
@example(text=HUGE)
def test_a_page_shows_text_from_other_nodes_as_text(name: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = PAGES[name](a_run(Path(folder), text), text)
    harmless(page, name)
    page = page.partition(RUN_FILE)[0]
    assert not re.search(r"<\w", page), f"{name} has HTML in it"
    assert not re.search(r"(?<!\\)\]\((?!report/)", page), f"{name} has a link in it"
    assert "\n# head" not in page
    assert page.count("\n") == lines_of(PAGES[name]), f"{name} has other lines than with harmless names"


@settings(max_examples=5, phases=(Phase.explicit, Phase.generate))
@given(text=texts)
@example(text="".join(PIECES))
@example(text=HUGE)
def test_pictures_are_drawn_whatever_names_are(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = a_run(Path(folder), text)
        charts.timeline_chart(Path(folder) / "t.png", assignments(run), happenings(run), 10.0)
        charts.heat_map(Path(folder) / "h.png", [text], [text], [[0.5]])
        assert (Path(folder) / "t.png").stat().st_size < 1 << 20
        assert (Path(folder) / "h.png").stat().st_size < 1 << 20
