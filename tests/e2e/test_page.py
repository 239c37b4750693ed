"""The page of a run in a real browser: Debian's Chromium, driven by playwright."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from barnraise.account.account import AccountReader
from barnraise.account.moment import RunMoment
from barnraise.account.page.assets import content
from barnraise.account.page.report_page import page_of
from barnraise.dashboard.access import token_of
from barnraise.dashboard.acting import Acting
from barnraise.dashboard.server import Dashboard
from barnraise.dashboard.source import FolderSource
from barnraise.ledger import Change, Ledger, NodeChanged, Noted, RunDirectory, notes

from ..campaigns import some
from ..decisions import assigned, judged
from ..unit.cli.test_status import BEGINNING, END, make_run

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VIEWS = ("overview", "workers", "matching", "checks", "events")
PICTURES = os.environ.get("BARNRAISE_PICTURES", "")
"""A folder that pictures for the documentation are written to (make pictures)."""

PICTURED = (("overview", "light"), ("workers", "dark"))

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium (Debian's package chromium) is not installed"),
    pytest.mark.timeout(300),
]
TRAINING = {"tokens": 50_000_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


@contextmanager
def opened(
    browser: Any, url: str, lost: bool = False, before: Callable[[Any], Any] = lambda page: None, **options: Any
) -> Iterator[Any]:
    """A page, whose errors and requests to other servers fail the test; its own may fail where that is `lost`."""
    context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
    page = context.new_page()
    troubles: list[str] = []
    usual = "Failed to load resource" if lost else "nothing"
    page.on("console", lambda told: troubles.append(told.text) if told.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    home = "/".join(url.split("/")[:3])
    page.on("request", lambda asked: None if asked.url.startswith((home, "data:")) else troubles.append(asked.url))
    before(page)
    page.goto(url)
    yield page
    context.close()
    assert not [told for told in troubles if usual not in told]


def until(page: Any, expression: str, seconds: float = 30.0) -> None:
    """Wait until an expression holds on a page, whose policy lets no script of the page evaluate it."""
    deadline = time.monotonic() + seconds
    asked = f"(() => {{ try {{ return Boolean({expression}) }} catch (notThere) {{ return false }} }})()"
    while not page.evaluate(asked):
        assert time.monotonic() < deadline, f"{expression} in {page.locator('body').inner_text()[:2000]}"
        page.wait_for_timeout(20)


@contextmanager
def served(run: RunDirectory) -> Iterator[Dashboard]:
    """The page of a run that works, as far as its lock tells."""
    with run.lock(), Dashboard(FolderSource(run), "127.0.0.1", 0) as dashboard:
        yield dashboard


def violations(page: Any) -> list[Any]:
    """The violations that axe finds on a page, run beside the page's own policy."""
    folder = Path(str(resources.files("axe_core_python")))
    axe = next(folder.rglob("axe.min.js")).read_text()
    asked = axe + "\naxe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(one => "
    asked += "[one.id, one.nodes.slice(0, 3).map(node => node.html.slice(0, 150))]))"
    session = page.context.new_cdp_session(page)
    answer = session.send("Runtime.evaluate", {"expression": asked, "awaitPromise": True, "returnByValue": True})
    found: list[Any] = answer["result"]["value"]
    return found


def many(folder: Path, nodes: int = 40) -> RunDirectory:
    """A run with some of everything."""
    decisions = [*BEGINNING]
    for number in range(nodes):
        name, start = f"lab-{number:02}", 20.0 + number
        decisions += [
            NodeChanged(start, name, Change.ENROLLED, key=name),
            NodeChanged(start, name, Change.JOINED, session=1),
            assigned(start, 100 + number, name, fetch=1.0, send=2.0),
            judged(start + 9.0, 100 + number, name, verdict="refused", reason="its norm is 9", digest="", seconds=5.0),
            assigned(start + 10.0, 300 + number, name),
        ]
    decisions += [
        Noted(70.0, notes.Measured(1, 400, {"perplexity": 25.8}, (notes.TextSample("2 plus 2 is ", "4, and"),))),
        Noted(71.0, notes.Matched(40, 12, 90, 31, 0.93, 0.97, 0.01, 0.02, 4, 0.95)),
        Noted(72.0, notes.HeldOff(600.0, "it lost work twice"), "lab-03"),
        NodeChanged(73.0, "lab-04", Change.SILENT, "silent for 30 s"),
        Noted(74.0, notes.Traffic(9_000_000, 30_000_000)),
    ]
    decisions.sort(key=lambda one: one.time)
    return make_run(folder, decisions)


def show(page: Any, view: str) -> None:
    page.evaluate(f"location.hash = '{view}'")
    page.wait_for_selector(f"main[data-view={view}] :is(.card, .fleet)")


def test_a_run_is_seen_as_it_trains_and_is_paused_from_the_page(barnraise, run_file, browser: Any) -> None:
    path = run_file(training=TRAINING, controller={"evaluations": 2000, "evaluation_rows": 8}, dashboard={"port": 0})
    train = barnraise("train", str(path), "--log", "plain")
    url = train.wait_for(lambda text: re.search(r"page: (\S+)", text))[1]
    with opened(browser, url, lost=True) as page:
        train.wait_for(lambda text: re.search(r"version [1-9]", text))
        until(page, "/^\\d/.test(document.querySelector('.big').textContent)")
        assert page.locator(".state").inner_text() == "training"
        assert "token=" not in page.url
        before = page.locator(".big").nth(3).inner_text()
        until(page, f"document.querySelectorAll('.big')[3].textContent !== {json.dumps(before)}", 30)
        show(page, "workers")
        page.locator("tr[data-name=one] button").click()
        until(page, "/one has|one is|one waits/.test(document.querySelector('main').textContent)")
        page.get_by_role("button", name="Pause", exact=True).first.click()
        page.locator("dialog input").fill("maintenance")
        page.locator("dialog").get_by_role("button", name="Pause").click()
        train.wait_for(lambda text: "maintenance" in text)
        until(page, "document.querySelector('.state').textContent === 'paused'")
        page.locator("dialog").get_by_role("button", name="Close").click()
        page.get_by_role("button", name="Continue").click()
        page.locator("dialog").get_by_role("button", name="Continue").click()
        until(page, "document.querySelector('.state').textContent === 'training'", 10)
        page.locator("dialog").get_by_role("button", name="Close").click()
        show(page, "overview")
        page.locator("textarea").fill("7 plus 8 is")
        page.get_by_role("button", name="Try the model").click()
        until(page, "document.querySelector('pre[role=status]').textContent.startsWith('7 plus 8 is')")
        train.popen.send_signal(signal.SIGINT)
        assert train.wait() == 130, train.text()
        until(page, "document.querySelector('.note.warn').textContent.includes('connection is lost')")


def test_an_event_comes_to_an_open_page(browser: Any, tmp_path: Path) -> None:
    run = many(tmp_path, 64)
    with served(run) as dashboard, opened(browser, dashboard.url) as page:
        until(page, "document.querySelector('.link').textContent === 'live'")
        page.wait_for_timeout(1500)
        for number in range(3):
            with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
                ledger.commit([Noted(80.0 + number, notes.Advice(f"advice {number}"))], {})
            until(page, f"document.body.textContent.includes('advice {number}')", 10)


@pytest.mark.parametrize("scheme", some(["light"], ["light", "dark"]))
def test_each_view_passes_axes_checks_and_is_pictured(browser: Any, tmp_path: Path, scheme: str) -> None:
    run = many(tmp_path)
    with served(run) as dashboard, opened(browser, dashboard.entry, color_scheme=scheme) as page:
        for view in VIEWS:
            show(page, view)
            page.wait_for_timeout(1200)
            if view == "workers":
                page.locator("tr[data-name=lab-03] button").click()
                until(page, "document.body.textContent.includes('lab-03 gets no task: it lost work twice')")
            assert violations(page) == [], view
            picture = page.screenshot()
            assert len(picture) > 15_000, "it shows something"
            if PICTURES and (view, scheme) in PICTURED:
                (Path(PICTURES) / f"page-{view}-{scheme}.png").write_bytes(picture)
        for name in ("Invite", "Share", "Finish"):
            page.get_by_role("button", name=name, exact=True).first.click()
            page.wait_for_selector("dialog[open]")
            assert violations(page) == [], name
            page.keyboard.press("Escape")
            page.wait_for_selector("dialog", state="detached")


def test_join_and_own_pages_open_by_their_links_alone(browser: Any, tmp_path: Path) -> None:
    run = many(tmp_path)
    with served(run) as dashboard:
        acting, home = Acting(run, token_of(run)), dashboard.url.rstrip("/")
        with opened(browser, home + acting.path(1.0, "lab-07")) as page:
            until(page, "document.body.textContent.includes('Your machine trained')")
            assert violations(page) == []
            if PICTURES:
                page.screenshot(path=Path(PICTURES) / "page-me.png")
        with opened(browser, home + "/join#barnraise-invite'onerror=1") as page:
            page.wait_for_selector("img.qr")
            assert "barnraise join 'barnraise-inviteonerror=1'" in page.locator("pre").inner_text()
            assert violations(page) == []
            if PICTURES:
                page.screenshot(path=Path(PICTURES) / "page-join.png", full_page=True)
        with opened(browser, home + acting.path(1.0)) as page:
            until(page, "document.body.textContent.includes('worker 3')")
            assert "lab-0" not in page.content()
            assert page.get_by_role("button", name="Finish").count() == 0
            for view in VIEWS[1:]:
                show(page, view)
                page.wait_for_timeout(300)
                assert "lab-0" not in page.content(), view


def test_empty_waiting_stale_and_broken_are_told_apart(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path, [])
    with Dashboard(FolderSource(run), "127.0.0.1", 0) as dashboard:
        url = dashboard.url
        port = int(url.rstrip("/").rpartition(":")[2])
        hold = re.compile(r"/data/matching")
        with opened(browser, url, lost=True, before=lambda page: page.route(hold, lambda route: None)) as page:
            until(page, "document.body.textContent.includes('nobody yet')")
            assert "not measured yet" in page.locator("main").inner_text(), "empty"
            show_only = "location.hash = 'matching'"
            page.evaluate(show_only)
            page.wait_for_timeout(500)
            assert page.locator(".link").inner_text() == "live"
            page.evaluate("location.hash = 'overview'")
            until(page, "document.body.textContent.includes('nobody yet')")
            dashboard.__exit__(None, None, None)
            until(page, "document.querySelector('.link').textContent === 'connection lost'", 20)
            assert "figures are as they were then" in page.locator(".note").inner_text()
            with Dashboard(FolderSource(run), "127.0.0.1", port):
                until(page, "document.querySelector('.link').textContent === 'live'", 30)
                page.goto("about:blank")


def test_a_run_that_cannot_be_read_is_told_until_it_can(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path, [])
    aside = run.ledger.rename(run.ledger.with_suffix(".aside"))
    run.account_cache.unlink(missing_ok=True)
    with served(run) as dashboard, opened(browser, dashboard.url, lost=True) as page:
        until(page, "document.querySelector('.link').textContent === 'the run cannot be read'")
        assert "there is no ledger" in page.locator(".note").inner_text()
        aside.rename(run.ledger)
        until(page, "document.querySelector('.link').textContent === 'live'", 20)


def test_the_past_is_played_back(browser: Any, tmp_path: Path) -> None:
    run = many(tmp_path)
    with served(run) as dashboard, opened(browser, dashboard.url) as page:
        until(page, "Number(document.querySelector('input[type=range]').max) >= 74")
        page.locator("input[type=range]").fill("25")
        until(page, "document.querySelector('output').textContent.startsWith('25 s of')")
        assert page.locator(".big").nth(1).inner_text() == "7", "a and the first six labs"
        assert "lab-39" not in page.locator("main").inner_text()
        page.get_by_role("button", name="Play").click()
        until(page, "!document.querySelector('output').textContent.startsWith('25 s of')")
        page.get_by_role("button", name="Now").click()
        until(page, "document.querySelector('output').textContent.startsWith('now')")
        assert page.locator(".big").nth(1).inner_text() != "7"


def test_a_browser_without_server_sent_events_asks_again_and_again(browser: Any, tmp_path: Path) -> None:
    run = many(tmp_path)
    with (
        served(run) as dashboard,
        opened(browser, dashboard.url, before=lambda page: page.add_init_script("delete window.EventSource")) as page,
    ):
        until(page, "document.querySelector('.link').textContent === 'live'")
        with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
            ledger.commit([Noted(80.0, notes.Advice("fewer nodes"))], {})
        until(page, "document.body.textContent.includes('fewer nodes')", 20)


def test_the_report_is_one_file_that_shows_the_same(browser: Any, tmp_path: Path) -> None:
    with AccountReader(many(tmp_path)) as reader:
        seen = RunMoment(reader.read(), reader.over_time, 1000, works=False)
    path = tmp_path / "report.html"
    path.write_text(page_of(seen), "utf-8")
    with opened(browser, path.as_uri()) as page:
        assert "3.250" in page.locator("main").inner_text()
        for view in VIEWS:
            show(page, view)
            page.wait_for_timeout(300)
            assert violations(page) == [], view
        assert page.locator(".link").inner_text() == "report"


def test_hostile_names_and_events_do_nothing_on_the_page(browser: Any, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)><b>\x1b[2J\u202eevil\x00" + "A" * 1_000_000
    run = make_run(tmp_path, [
        *BEGINNING, NodeChanged(8.5, "b", Change.JOINED, session=1), NodeChanged(9.0, "b", Change.LEFT, hostile),
        Noted(9.5, notes.Measured(1, 400, {hostile: 2.0}, (notes.TextSample(hostile, hostile),))),
        judged(9.6, 2, "a", verdict="refused", reason=hostile, digest=""), *END,
    ])  # fmt: skip
    with served(run) as dashboard, opened(browser, dashboard.url) as page:
        for view in VIEWS:
            show(page, view)
            page.wait_for_timeout(400)
            assert page.locator("main img, main b").count() == 0, view
            assert not re.search("[\x00-\x08\x0e-\x1f\u202a-\u202e\u2066-\u2069]", page.locator("main").inner_text())
            assert len(page.content()) < 300_000


def test_a_phone_shows_each_view_without_scrolling_sideways(browser: Any, tmp_path: Path) -> None:
    with served(many(tmp_path)) as dashboard:
        phone = {"viewport": {"width": 390, "height": 844}, "reduced_motion": "reduce"}
        with opened(browser, dashboard.url, **phone) as page:
            for view in VIEWS:
                show(page, view)
                page.wait_for_timeout(400)
                assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
            if PICTURES:
                show(page, "overview")
                page.wait_for_timeout(800)
                page.screenshot(path=Path(PICTURES) / "page-phone.png")


def test_the_keyboard_reaches_views_rows_and_time(browser: Any, tmp_path: Path) -> None:
    with served(many(tmp_path)) as dashboard, opened(browser, dashboard.url) as page:
        page.wait_for_selector("nav a")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        reached = []
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.textContent.slice(0, 20)"))
        assert "Workers" in reached
        page.locator("nav a", has_text="Workers").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("tr[data-name]")
        page.locator("tr[data-name] button").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("main section.card")


def test_the_charts_library_is_fetched_when_barnraise_is_installed() -> None:
    assert "uPlot" in content("uPlot.iife.min.js")[:300], "see the warning of `pip install`: npm could not fetch it"
