"""The files of a run's page, and the HTML that puts them together."""

from __future__ import annotations

from importlib import resources

SCRIPTS = (
    "uPlot.iife.min.js", "base.js", "store.js", "charts.js", "clock.js", "overview.js", "workers.js", "matching.js",
    "checks.js", "events.js", "hosting.js",
)  # fmt: skip
"""The scripts of the page of a run, in the order in which they are run; `main.js` follows."""

STYLES = ("uPlot.min.css", "page.css")
STATIC = {
    **dict.fromkeys((*SCRIPTS, "main.js", "join.js", "me.js"), "text/javascript"),
    **dict.fromkeys(STYLES, "text/css"),
}
"""The files that a page may ask for, and their types."""

LAST = {"run": (*SCRIPTS, "main.js"), "join": ("base.js", "join.js"), "me": ("base.js", "me.js")}
"""The scripts of each page."""


def content(name: str) -> str:
    """Return a file of the page; empty where the charts' library was not fetched when barnraise was installed."""
    found = resources.files("barnraise.account.page").joinpath("static", name)
    return found.read_text("utf-8") if found.is_file() else ""


def page(name: str) -> str:
    """Return the HTML of a page in LAST, which asks this server for its files."""
    styles = "\n".join(f'<link rel="stylesheet" href="/static/{one}">' for one in STYLES)
    scripts = "\n".join(f'<script src="/static/{one}" defer></script>' for one in LAST[name])
    return content("page.html").replace("<!-- styles -->", styles).replace("<!-- scripts -->", scripts)
