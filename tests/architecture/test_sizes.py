"""A record has at most a dozen fields that are not grouped, and a call at most six arguments without a name. The rules
are tried on bad code.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.architecture.trees import parse, walk

PACKAGE = Path(__file__).parents[2] / "src" / "barnraise"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MOST_FIELDS, MOST_POSITIONAL = 12, 6

KEYS = "a section of the run file: its keys are stable, and stand side by side for whoever writes one"
ALLOWED = {
    ("config/schema.py", "TrainingSection"): KEYS,
    ("config/schema.py", "ControllerSection"): KEYS,
    ("config/schema.py", "RunFile"): "the sections themselves",
    ("config/data_sections.py", "Fields"): KEYS,
    ("config/data_sections.py", "SatData"): KEYS,
    ("config/trial_sections.py", "FaultSection"): KEYS,
}
"""(file, class or what is called): why it may be larger."""


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def is_field(statement: ast.stmt) -> bool:
    """Whether it declares a field: all that is annotated, but for what belongs to the class."""
    if not isinstance(statement, ast.AnnAssign):
        return False
    hint = statement.annotation
    hint = hint.value if isinstance(hint, ast.Subscript) else hint
    return ast.unparse(hint).rpartition(".")[2] != "ClassVar"


def oversized(tree: ast.Module) -> set[str]:
    """The classes and the callables that are beyond the limits."""
    found = set()
    for node in walk(tree):
        if isinstance(node, ast.ClassDef) and sum(map(is_field, node.body)) > MOST_FIELDS:
            found.add(node.name)
        elif isinstance(node, ast.Call):
            positional = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
            if len(positional) > MOST_POSITIONAL:
                found.add(ast.unparse(node.func))
    return found


def test_records_are_grouped_and_arguments_named() -> None:
    assert {(name_of(path), name) for path in SOURCES for name in oversized(parse(path))} - set(ALLOWED) == set()


def test_every_allowed_definition_is_still_oversized() -> None:
    files = {file for file, _ in ALLOWED}
    found = {(file, name) for file in files for name in oversized(parse(PACKAGE / file))}
    assert set(ALLOWED) <= found


def record(fields: int, base: str = "msgspec.Struct", hint: str = "int") -> str:
    lines = "\n".join(f"    f{number}: {hint} = 0" for number in range(fields))
    return f'class Record({base}):\n    """A record."""\n\n{lines}\n    kind = "no field"\n'


@pytest.mark.parametrize(
    "code",
    [
        record(MOST_FIELDS + 1),
        record(MOST_FIELDS + 1, base="NamedTuple"),
        record(MOST_FIELDS + 1, hint="dict[str, ClassVar]"),
        f"@dataclass\n{record(MOST_FIELDS + 1, base='')}",
        "def f():\n" + "\n".join(f"    {line}" for line in record(MOST_FIELDS + 1).splitlines()),
        "f(1, 2, 3, 4, 5, 6, 7)",
        "a.b(1, 2, 3, 4, 5, 6, 7, key=8)",
        "x = [f(1, 2, 3, *others, 4, 5, 6, 7)]",
    ],
)
def test_too_much_is_noticed(code: str) -> None:
    assert oversized(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        record(MOST_FIELDS),
        record(MOST_FIELDS) + "    table: ClassVar[str]\n    other: typing.ClassVar = 0\n",
        "f(1, 2, 3, 4, 5, 6)",
        "f(1, 2, 3, 4, 5, 6, *others, key=7, **more)",
    ],
)
def test_small_definitions_pass(code: str) -> None:
    assert oversized(ast.parse(code)) == set()
