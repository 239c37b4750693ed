"""The stories and events of a run for its page, from the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnraise.account import story as told
from barnraise.account.chronicle import of_note
from barnraise.account.moment import RunMoment
from barnraise.account.page.veil import Veil
from barnraise.core.errors import InputError
from barnraise.core.text import printable
from barnraise.ledger import Judged, LedgerView, RunDirectory

MOST_LINES = 200
"""Lines of a story, and events in one answer: the newest."""

REFUSED, DISCARDED = "refused", "discarded"


def story(run: RunDirectory, what: str) -> dict[str, Any]:
    """Return the story of the node or assignment `what`: lines of time and sentence. Raises InputError."""
    with LedgerView(run.ledger) as view:
        node = next((name for name in view.names() if what in (name, Veil().name(name))), None)
        if node is not None:
            lines = told.of_node(view, node, MOST_LINES)
        else:
            lines = told.of_assignment(view, int(what)) if what.isdecimal() and len(what) <= 18 else []
    if not lines:
        raise InputError(f"there is neither a node nor an assignment '{printable(what)}'")
    return {"lines": [[round(line.time, 1), Veil().text(line.text)] for line in lines[-MOST_LINES:]]}


def events(seen: RunMoment, kinds: str, node: str) -> dict[str, Any]:
    """Return the newest events: time, kind, node, sentence. Those of note unless `kinds` are named, with commas."""
    wanted = {kind for kind in kinds.split(",") if kind}
    happenings = seen.account.happenings if wanted else of_note(seen.account.happenings)
    found = [
        (one.time, one.kind, Veil().name(one.node), Veil().text(one.text))
        for one in happenings
        if (not wanted or one.kind in wanted) and node in ("", one.node)
    ][-MOST_LINES:]
    if not wanted or wanted & {REFUSED, DISCARDED}:
        found += _verdicts(seen.account.run, wanted & {REFUSED, DISCARDED} or {REFUSED}, node)
    found.sort(key=lambda one: one[0])
    every = sorted({one.kind for one in seen.account.happenings} | {REFUSED, DISCARDED})
    return {"events": found[-MOST_LINES:], "kinds": every}


def _verdicts(run: RunDirectory, verdicts: set[str], node: str) -> Iterator[tuple[float, str, str, str]]:
    """Yield the newest results that were not accepted."""
    with LedgerView(run.ledger) as view:
        for verdict in verdicts:
            where, given = ("verdict = ? AND node = ?", (verdict, node)) if node else ("verdict = ?", (verdict,))
            for _, judged in view.find(Judged, where, *given, last=MOST_LINES):
                yield judged.time, judged.verdict, Veil().name(judged.node), Veil().text(told.sentence(judged))
