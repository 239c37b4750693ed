"""Docstrings and comments are plain English: long enough, with a verb, and free of banned constructions.

The rules are functions from parsed code to findings, and are tried on bad text.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.architecture.trees import parse, walk
from tests.architecture.words import CLAUSE_NAME, banned, first_sentence, has_verb

PACKAGE = Path(__file__).parents[2] / "src" / "barnraise"
PACKAGES = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
FEWEST_WORDS = 4

NOT_YET: set[str] = set()
"""Packages whose docstrings are not rewritten yet. One that has no findings must leave this set."""

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Documented(NamedTuple):
    """A definition with its docstring."""

    node: Definition
    docstring: str
    line: int


def public(node: ast.AST) -> Iterator[Definition]:
    """Yield the module, its public classes and functions, and their public methods; nothing inside functions."""
    if isinstance(node, Definition):
        if getattr(node, "name", "").startswith("_"):
            return
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
    for child in ast.iter_child_nodes(node):
        yield from public(child)


def documented(tree: ast.Module) -> Iterator[Documented]:
    """Yield the public definitions that have a docstring."""
    for node in public(tree):
        docstring = ast.get_docstring(node)
        if docstring is not None:
            yield Documented(node, docstring, node.body[0].lineno)


def shortcomings(tree: ast.Module) -> list[str]:
    """Return what is wrong with the form of public docstrings: too short, without a verb, first line not alone."""
    found = []
    for node, docstring, line in documented(tree):
        sentence = first_sentence(docstring)
        first, *rest = docstring.splitlines()
        if len(sentence.split()) < FEWEST_WORDS:
            found.append(f"{line}: shorter than {FEWEST_WORDS} words: {sentence}")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not has_verb(sentence):
            found.append(f"{line}: no verb: {sentence}")
        if not first.rstrip().endswith((".", ":", "?")) or rest[:1] not in ([], [""]):
            found.append(f"{line}: the first line does not stand alone: {first}")
    return found


def texts(tree: ast.Module, code: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each docstring, of each string that documents an attribute, and of each comment."""
    for node in walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for paragraph in node.value.value.split("\n\n"):
                yield node.lineno, paragraph
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    comments = [token for token in tokens if token.type == tokenize.COMMENT]
    block: list[tokenize.TokenInfo] = []
    for comment in [*comments, None]:
        continues = (
            block
            and comment is not None
            and comment.start == (block[-1].start[0] + 1, block[-1].start[1])
            and comment.line.lstrip().startswith("#")
        )
        if comment is not None and continues:
            block.append(comment)
            continue
        if block:
            yield block[0].start[0], " ".join(token.string.lstrip("#").strip() for token in block)
        block = [comment] if comment is not None else []


def findings(code: str) -> list[str]:
    """Return all findings in a source file, each with its line."""
    tree = ast.parse(code)
    found = shortcomings(tree)
    for line, text in texts(tree, code):
        found += [f"{line}: {finding}" for finding in banned(text)]
    return found


def clause_names(tree: ast.Module) -> list[str]:
    """Return the names of test functions whose subject is a clause, each with its line."""
    return [
        f"{node.lineno}: {node.name}"
        for node in walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and CLAUSE_NAME.match(node.name)
    ]


def in_package(name: str) -> list[str]:
    """Return all findings in the files of a package, each with its file and line."""
    return [
        f"{path.relative_to(PACKAGE)}:{finding}"
        for path in sorted((PACKAGE / name).rglob("*.py"))
        for finding in findings(path.read_text())
    ]


@pytest.mark.parametrize("name", PACKAGES)
def test_docstrings_and_comments_are_plain(name: str) -> None:
    found = in_package(name)
    if name in NOT_YET:
        assert found, f"{name} has no findings left: take it out of NOT_YET"
    else:
        assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", ["benchmarks", "examples", "tests"])
def test_text_beside_the_package_is_plain(folder: str) -> None:
    """Benchmarks and tests are read like the package: their docstrings have no banned constructions either."""
    root = PACKAGE.parents[1]
    found = [
        f"{path.relative_to(root)}:{line}: {finding}"
        for path in sorted((root / folder).rglob("*.py"))
        for line, text in texts(parse(path), path.read_text())
        for finding in banned(text)
    ]
    assert not found, "\n".join(found)


def test_names_of_tests_begin_with_an_actor_or_a_thing() -> None:
    root = PACKAGE.parents[1]
    found = [
        f"{path.relative_to(root)}:{name}"
        for path in sorted((root / "tests").rglob("*.py"))
        for name in clause_names(parse(path))
    ]
    assert not found, "begin with the worker, the node, the run, or the thing:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "def test_who_is_late_is_refused(): pass",
        "def test_what_is_late_is_refused(): pass",
        "async def test_whoever_comes_late_is_refused(): pass",
        "def test_whatever_comes_late_is_refused(): pass",
        "class TestLate:\n    def test_nobody_waits(self): pass",
        "def test_of_two_results_one_is_refused(): pass",
    ],
)
def test_a_name_whose_subject_is_a_clause_is_noticed(code: str) -> None:
    assert clause_names(ast.parse(code))


def test_plain_names_of_tests_pass() -> None:
    assert (
        clause_names(ast.parse("def test_a_late_result_is_refused(): ...\ndef test_offers(): ...\ndef of_two(): ..."))
        == []
    )


def test_the_package_itself_is_plain() -> None:
    assert [finding for path in sorted(PACKAGE.glob("*.py")) for finding in findings(path.read_text())] == []


@pytest.mark.parametrize(
    "code",
    [
        'def f():\n    """Bytes in decimal units."""',
        'def f():\n    """Return it."""',
        'class C:\n    """All of them."""',
        'class C:\n    """A node."""',
        '"""The first line that goes on\nin the second."""',
        'def f():\n    """Return the name of a node.\n    Raises InputError."""',
        'class C:\n    def f(self):\n        """The name of its file."""',
        'def f():\n    """Whether a."""',
        'def f():\n    """What a worker made of its task is here."""',
        'def f():\n    """Return the outcome of it. Who is late is not waited for."""',
        "# Of stateful tasks no node is judged by that.",
        "x = 1  # of the whole vector",
        "# The worker\n# goes on with the next one.",
        'X = 1\n"""What came of the run."""',
    ],
)
def test_bad_words_are_noticed(code: str) -> None:
    assert findings(code)


@pytest.mark.parametrize(
    "code",
    [
        'def f():\n    """Format a number of bytes in decimal units."""',
        'def f():\n    """Return the name of a node.\n\n    Raises InputError when it has none.\n    """',
        'class C:\n    """A port that another process holds."""',
        'class C:\n    def f(self):\n        """The file that holds it."""',
        'class C:\n    def _f(self):\n        """Bytes."""',
        'def f():\n    return "Who came"  # a value that the caller shows',
    ],
)
def test_plain_words_pass(code: str) -> None:
    assert findings(code) == []
