"""The words of the documentation: no banned construction in a page, and a README that is read in three minutes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.architecture.words import banned_in_pages

from barnraise.cli.reference import PAGES as GENERATED

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITTEN = [page for page in sorted(DOCS.rglob("*.md")) if str(page.relative_to(DOCS)) not in GENERATED]
TEXTS = [*WRITTEN, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"))]
SHOWN = (DOCS / "development/style.md",)
"""Pages that show what is banned."""

README_WORDS = 700
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUESTION = re.compile(r"(?:Who|What|Whose|Whom|Of what)\b[^.?!]*\?")


def blocks(text: str) -> list[str]:
    """The paragraphs, list items, headings and cells of a page, without code, links' targets and questions."""
    text = FENCE.sub("", text)
    text = re.sub(r"`[^`\n]*`", "`code`", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = QUESTION.sub("A question?", text)
    pieces = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=\|)|\|", text)
    return [re.sub(r"^\s*(?:[-*]|\d+\.|#+)\s+", "", re.sub(r"[*]+", "", piece)).strip() for piece in pieces]


def section(path: Path) -> str:
    """The text that is judged: of the changelog its newest section."""
    text = path.read_text()
    return text if path.name != "CHANGELOG.md" else text.split("\n## ")[1]


@pytest.mark.parametrize("path", [path for path in TEXTS if path not in SHOWN], ids=lambda path: path.name)
def test_no_banned_construction(path: Path) -> None:
    found = [f"{block[:90]} ... {what}" for block in blocks(section(path)) for what in banned_in_pages(block)]
    assert found == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_headings_are_no_questions(path: Path) -> None:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", section(path)), re.MULTILINE)
    assert [one for one in headings if one.endswith("?") or re.match(r"(?:Who|Whose|Why|When|Of)\b", one)] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= README_WORDS


@pytest.mark.parametrize(
    "text",
    [
        "Who trains leaves.",
        "It goes on with it.",
        "A. Of four nodes one is slow.",
        "Whoever asks gets it.",
        "Do it anew.",
    ],
)
def test_banned_constructions_are_noticed(text: str) -> None:
    assert banned_in_pages(text)


@pytest.mark.parametrize("text", ["Who restarts a worker?", "The node that asks gets it.", "It is one of four."])
def test_plain_sentences_pass(text: str) -> None:
    assert [what for block in blocks(text) for what in banned_in_pages(block)] == []
