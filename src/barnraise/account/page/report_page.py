"""The report.html of a run: its page as one file with its data, which needs no server and no network."""

from __future__ import annotations

from pathlib import Path

import msgspec

from barnraise.account.account import AccountReader
from barnraise.account.moment import RunMoment
from barnraise.account.nodes import in_order_of_interest
from barnraise.account.page.assets import LAST, STYLES, content
from barnraise.account.page.pictures import VIEWS, lanes
from barnraise.account.page.veil import Veil
from barnraise.ledger import RunDirectory

MOST_LANES = 300
"""Workers whose lanes are in the file."""


def write_page(run: RunDirectory, budget: int) -> Path:
    """Write report.html in the run directory. Raises StorageError, CorruptionError."""
    with AccountReader(run) as reader:
        account = reader.read()
        seen = RunMoment(account, reader.over_time, budget, works=False)
        run.write(run.report_page, page_of(seen).encode("utf-8", "replace"))
    return run.report_page


def page_of(seen: RunMoment) -> str:
    """Return the page of a moment, which names and shows all that a host sees."""
    shown = in_order_of_interest(seen.rows, MOST_LANES)
    data = {name: make(seen, Veil()) for name, make in VIEWS.items()}
    data["lanes"] = {
        "width": seen.over_time.activity.width,
        "lanes": lanes(seen, [row.name for row in shown], Veil()),
    }
    return (
        content("page.html")
        .replace("<!-- styles -->", "\n".join(f"<style>\n{content(name)}</style>" for name in STYLES))
        .replace("<!-- scripts -->", "\n".join(f"<script>\n{_closed(content(name))}</script>" for name in LAST["run"]))
        .replace("<!-- data -->", f'<script type="application/json" id="data">{_embedded(data)}</script>')
    )


def _embedded(data: object) -> str:
    """Return JSON that no text in it can end: `<` and the line separators of JavaScript are written as escapes."""
    text = msgspec.json.encode(data).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _closed(script: str) -> str:
    return script.replace("</script", "<\\/script")
