"""A policy's name stands in its catalog and its file: above, code asks for what policies declare, and lists the names
that there are. The rule is tried on bad code.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.architecture.trees import parse, walk

from barnraise.aggregation.catalog import CATALOG as RULES
from barnraise.compression.catalog import CATALOG as CODECS
from barnraise.config.keys import at, json_schema
from barnraise.matching.catalog import CATALOG as SCHEDULERS
from barnraise.plan.names import names
from barnraise.staleness.catalog import CATALOG as STALENESS
from barnraise.training.catalog import CATALOG as OUTER
from barnraise.training.catalog import INNER
from barnraise.transport.catalog import CATALOG as TRANSPORTS

PACKAGE = Path(__file__).parents[2] / "src" / "barnraise"
WATCHED = sorted(PACKAGE / "config" / name for name in ("policy_sections.py", "schema.py", "values.py"))
WATCHED += sorted([*(PACKAGE / "plan").rglob("*.py"), *(PACKAGE / "cli").rglob("*.py")])

CATALOGS = [RULES, CODECS, SCHEDULERS, STALENESS, OUTER, INNER, TRANSPORTS]
NAMES = {name for catalog in CATALOGS for name in catalog.entries} | {
    name for known in names().values() for name in known
} - {"join", "kill", "auto"}  # faults that are keys and commands too, and what many keys take

ENGLISH = {"adaptive", "bloom", "capability", "constant", "cosine", "degraded", "fixed", "good", "linear", "mean"}
ENGLISH |= {"greedy", "none", "opt", "optimum", "priority", "random", "swarm", "median"}
ENGLISH |= {"inf", "lazy", "nan", "noise", "scale", "zero"}
ENGLISH |= {"corrupt", "duplicate", "hang", "join", "kill", "partition", "preempt", "reorder"}
"""Names that are words too: in a sentence they mean nothing, alone they are names."""

ALLOWED = {
    ("config/schema.py", "fixed"): "how training.pace is called when all take alike many steps",
    ("cli/doctor.py", "zmq"): "the Python module, which is looked for",
    ("cli/doctor.py", "none"): "that there is none of something",
    ("cli/data.py", "random"): "a family of formulas",
    ("plan/overhead.py", "noise"): "the share of differential privacy in a worker's time",
    ("plan/threats.py", "colluding"): "workers or trustees who share what they know",
    ("plan/privacy_rows.py", "noise"): "a key of differential privacy",
    ("plan/privacy.py", "noise"): "a key of differential privacy",
    ("cli/console.py", "inf"): "infinity, as JSON cannot say it",
}
"""Names that look like a policy's and are none."""


def spelled(tree: ast.Module) -> list[tuple[int, str]]:
    """(line, name) of each policy's name in a string, but for docstrings and the defaults of keys."""
    skipped: set[int] = set()
    for node in walk(tree):
        body = getattr(node, "body", [])
        for statement in body if isinstance(body, list) else []:
            if isinstance(statement, ast.Expr):
                skipped.add(id(statement.value))
        if isinstance(node, ast.keyword) and node.arg == "default":
            skipped.add(id(node.value))
    found = []
    for node in walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            words = {node.value} if node.value in NAMES else set(re.findall(r"[\w-]+", node.value)) - ENGLISH
            found += [(node.lineno, name) for name in sorted(words & NAMES)]
    return found


def test_no_policy_is_asked_for_by_name() -> None:
    """The names that files spell are those allowed, and each of these is still in its file."""
    found = {(str(path.relative_to(PACKAGE)), name) for path in WATCHED for _, name in spelled(parse(path))}
    assert found == set(ALLOWED)


def test_a_default_is_a_name_of_its_family() -> None:
    known = names()
    for section in json_schema()["properties"]:
        properties = at((section,)).get("properties", {})
        for key, schema in properties.items():
            family = schema.get("x-names") or schema.get("anyOf", [{}])[0].get("x-names")
            if family and schema.get("default") is not None:
                assert schema["default"] in known[family], f"{section}.{key}"


@pytest.mark.parametrize(
    "code",
    [
        'if case.outer.name == "sgd": ...',
        'wrong = "nesterov" in name',
        'kind: Literal["cosine", "linear"]',
        'row("use krum")',
        'text = f"{name} with sparse_loco"',
        'if rule == "mean": ...',
        'Field(default="none", description="One of none, fp16.")',
    ],
)
def test_a_spelled_name_is_noticed(code: str) -> None:
    assert spelled(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        '"""Krum is krum."""\nx = 1',
        'Field(default="sgd", description="The optimizer of the local steps.")',
        'text = "none of them is a good mean"',
        'text = "momentum"',
    ],
)
def test_other_text_passes(code: str) -> None:
    assert spelled(ast.parse(code)) == []
