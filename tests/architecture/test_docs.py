"""The documentation: generated pages are fresh, each page is near, and what it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from barnraise.cli.reference import PAGES as GENERATED

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"))]
SOURCES = [
    path
    for folder in ("src", "tests", "benchmarks", "examples", "scripts")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".yaml", ".sql", ""} and path.is_file()
]

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED_PAGE = re.compile(r"\bdocs/[\w/-]+\.(?:md|json)\b")
NAMED_FILE = re.compile(r"`((?:[\w-]+/)+[\w.-]+\.(?:py|sql|toml|yaml|md|json|png)|(?:controller|worker)/[\w/]+)`")
NAMED_MODULE = re.compile(r"`(barnraise(?:\.[a-z]\w*)+)")
IN_A_RUN = ("RUN_DIR/", "model/", "keys/", "standby/", "corpus/", "texts/")
"""How paths begin that are in a run directory or are a user's own."""
NO_MODULES = {"problems", "train", "simulate", "serve", "join", "attacks", "transport.inner", "training.inner"}
"""Calls of the package, and groups of entry points."""


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as mkdocs and GitHub make them."""
    headings = re.findall(r"^#{1,6} (.*)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading) for heading in headings)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in plain}


def targets(page: Path) -> list[tuple[Path, str]]:
    """The files that a page links to, with the anchors in them."""
    found = []
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", link):
            name, _, anchor = link.partition("#")
            found.append(((page.parent / name).resolve() if name else page, anchor))
    return found


def navigation() -> dict[str, list[Path]]:
    """The pages of each tab of the site, in their order."""
    (nav,) = [yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]]

    def leaves(entry: Any) -> list[Path]:
        if isinstance(entry, str):
            return [DOCS / entry]
        inner = entry.values() if isinstance(entry, dict) else entry
        return [page for one in inner for page in leaves(one)]

    return {name: leaves(entry) for tab in nav for name, entry in tab.items()}


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_generated_page_is_fresh(name: str) -> None:
    assert (DOCS / name).read_text() == GENERATED[name](), "stale: run `make docs`"


def test_every_page_is_two_clicks_from_the_index() -> None:
    """A page shows the first page of each tab, all pages of its own tab, and its links."""
    tabs = navigation()

    def from_page(page: Path) -> set[Path]:
        own = [pages for pages in tabs.values() if page in pages]
        return (
            {pages[0] for pages in tabs.values()}
            | {one for pages in own for one in pages}
            | {target for target, _ in targets(page)}
        )

    first = from_page(DOCS / "index.md")
    second = {target for page in first if page.suffix == ".md" for target in from_page(page)}
    assert set(PAGES) <= first | second


@pytest.mark.parametrize("page", TEXTS, ids=shown)
def test_internal_links_lead_somewhere(page: Path) -> None:
    broken = [
        f"{target}#{anchor}"
        for target, anchor in targets(page)
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target))
    ]
    assert broken == []


@pytest.mark.parametrize("page", [page for page in TEXTS if page.name != "CHANGELOG.md"], ids=shown)
def test_named_files_exist(page: Path) -> None:
    text = page.read_text()
    files = {name for name in NAMED_FILE.findall(text) if not name.startswith(IN_A_RUN)}
    places = (ROOT, ROOT / "src", ROOT / "src/barnraise", page.parent)
    missing = {
        name
        for name in files
        if not any((place / name).exists() or (place / f"{name}.py").exists() for place in places)
    }
    assert missing == set()
    modules = {name.removeprefix("barnraise.") for name in NAMED_MODULE.findall(text)} - NO_MODULES
    assert {name for name in modules if not is_module(name)} == set()


def is_module(name: str) -> bool:
    """Whether `name` is a module or package, or something in one, by the file that it is in."""
    whole = ROOT / "src/barnraise" / name.replace(".", "/")
    owner = whole.parent if whole.parent.name != "barnraise" else whole
    return any(place.with_suffix(suffix).exists() for place in (whole, owner) for suffix in ("", ".py"))


def test_pages_named_in_the_source_exist() -> None:
    named = {(shown(path), page) for path in SOURCES for page in NAMED_PAGE.findall(path.read_text(errors="replace"))}
    assert {(path, page) for path, page in named if not (ROOT / page).exists()} == set()


def defined(path: Path) -> set[str]:
    """The functions and classes of a module, and the methods as `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if hasattr(inner, "name")} | {node.name}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


def test_the_questions_are_answered_by_what_exists() -> None:
    """Each question has a section that names the same function, and the index links the list of them."""
    questions = DOCS / "development/questions.md"
    assert questions in {target for target, _ in targets(DOCS / "index.md")}
    rows = [line for line in questions.read_text().splitlines() if line.startswith("|") and "](" in line]
    assert len(rows) == 5
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)`: `([\w.]+)`", row)
        assert named
        for file, name in named:
            assert name in defined(ROOT / "src/barnraise" / file), f"{file} defines no {name}"
        (target,) = LINK.findall(row)
        page, _, anchor = target.partition("#")
        text = (DOCS / "development" / page).read_text()
        assert anchor in anchors((DOCS / "development" / page).resolve())
        for part in named[0]:
            assert f"{part}`" in text, f"{page} does not name {part}"
