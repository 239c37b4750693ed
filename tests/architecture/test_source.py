"""Rules that every source file keeps: its size, what an `__init__` may hold, what hostile bytes must never reach, and
what a state machine must not know. Each rule is a function from parsed code to its findings, and is tried on bad code.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import pytest
from tests.architecture.trees import parse, walk

from barnraise.controller.machine import Controller
from barnraise.controller.state.part import Part
from barnraise.worker.contact import Contact
from barnraise.worker.incoming import Incoming
from barnraise.worker.machine import Worker
from barnraise.worker.outgoing import Outgoing
from barnraise.worker.tasks import Tasks

PACKAGE = Path(__file__).parents[2] / "src" / "barnraise"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 400
DECLARATIONS = {"config/schema.py", "core/types.py", "ledger/notes.py", "wire/messages.py"}
"""Files that are lists of declarations, where a further one is no reason to split the file."""

# Loading with any of these runs code that the bytes choose.
UNSAFE_MODULES = {"_pickle", "cloudpickle", "cPickle", "dill", "joblib", "marshal", "pickle", "shelve"}
UNSAFE_NAMES = {"__import__", "compile", "eval", "exec"}
UNSAFE_ATTRIBUTES = {"recv_pyobj", "send_pyobj", "read_pickle", "unsafe_load", "full_load"}
UNSAFE_CALLS = {"os.popen", "os.system", "torch.load", "torch.jit.load"}
UNSAFE_KEYWORDS = {"allow_pickle", "shell", "trust_remote_code"}

# Time, chance, files, sockets, threads and tensors reach a state machine as events, never as imports.
IMPURE_MODULES = {"asyncio", "concurrent", "multiprocessing", "queue", "select", "selectors", "signal", "threading"}
IMPURE_MODULES |= {"io", "os", "pathlib", "shutil", "socket", "sqlite3", "subprocess", "tempfile", "zmq"}
IMPURE_MODULES |= {"datetime", "random", "secrets", "time", "uuid"} | {"torch", "transformers"}
IMPURE_CALLS = {"open", "print", "input"}

TERMINAL_MODULES = {"click", "rich", "typer"}


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a chain of attributes on a name, else only the part that is one."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imported(tree: ast.AST, package: str = "barnraise") -> Iterator[str]:
    """Every module that code in `package` imports, inside functions too; `from a import b` as both `a` and `a.b`."""
    for node in walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join([*above, node.module or ""]).rstrip(".")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def roots(tree: ast.AST) -> set[str]:
    return {name.partition(".")[0] for name in imported(tree)}


def unsafe(tree: ast.Module) -> list[str]:
    """Return the calls that could run code which foreign bytes choose."""
    safe_loaders = {"SafeLoader", "CSafeLoader"} | {
        node.name
        for node in walk(tree)
        if isinstance(node, ast.ClassDef) and any(dotted(base).endswith("SafeLoader") for base in node.bases)
    }
    found = [f"import {name}" for name in sorted(roots(tree) & UNSAFE_MODULES)]
    found += [name for name in imported(tree) if name in UNSAFE_CALLS]
    for node in walk(tree):
        if isinstance(node, ast.Attribute) and (node.attr in UNSAFE_ATTRIBUTES or dotted(node) in UNSAFE_CALLS):
            found.append(dotted(node))
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        found += [name] if name in UNSAFE_NAMES else []
        found += [
            f"{name}({key}=...)"
            for key in UNSAFE_KEYWORDS & keywords.keys()
            if not (isinstance(keywords[key], ast.Constant) and keywords[key].value is False)
        ]
        if name in {"yaml.load", "yaml.load_all"}:
            loader = keywords.get("Loader") or (node.args[1] if len(node.args) > 1 else node)
            found += [name] if dotted(loader).rpartition(".")[2] not in safe_loaders else []
    return found


def not_public_names(tree: ast.Module) -> list[str]:
    """Return the statements of an `__init__.py` that it should not have.

    It may have a docstring, imports, constants, thin `create` and `names`, and lazy hooks.
    """
    found = []
    for node in tree.body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                continue
            case ast.FunctionDef(name="__getattr__" | "__dir__" | "create" | "names") if len(node.body) <= 6:
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]):
                if all(isinstance(inner, ast.Import | ast.ImportFrom) for inner in body):
                    continue
            case ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(value=ast.expr() as value):
                if not any(isinstance(inner, ast.Call | ast.Lambda) for inner in ast.walk(value)):
                    continue
        found.append(f"line {node.lineno}: {ast.unparse(node).splitlines()[0]}")
    return found


def impure(tree: ast.Module) -> list[str]:
    """Return the imports and calls by which time, chance or the outside world reach a state machine."""
    calls = {dotted(node.func) for node in walk(tree) if isinstance(node, ast.Call)}
    waits = {type(node).__name__ for node in walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.Await)}
    return sorted(roots(tree) & IMPURE_MODULES) + sorted(calls & IMPURE_CALLS) + sorted(waits)


MACHINES = {
    "controller": ["controller/machine.py", "controller/state/state.py"],
    "durability": ["controller/shell/durability.py"],
    "succession": ["controller/standby/succession.py"],
    "twins": ["controller/shell/duplicate_keys.py"],
    "worker": ["worker/machine.py"],
}
"""The state machines, by the files that they begin with."""


def state_machine_files(machine: str) -> set[Path]:
    """The files of a state machine: those it begins with, and all that they import of their own side, at any depth."""
    open_list = [PACKAGE / name for name in MACHINES[machine]]
    side = open_list[0].relative_to(PACKAGE).parts[0]
    found: set[Path] = set()
    while open_list:
        path = open_list.pop()
        if path in found:
            continue
        found.add(path)
        for name in imported(parse(path), ".".join(["barnraise", *path.relative_to(PACKAGE).parent.parts])):
            if name.startswith(f"barnraise.{side}."):
                module = PACKAGE.parent / Path(*name.split("."))
                candidates = [module.with_suffix(".py"), module / "__init__.py"]
                open_list += [candidate for candidate in candidates if candidate.exists()]
    return found


def findings(rule: Callable[[ast.Module], Collection[str]], paths: Iterable[Path]) -> dict[str, Collection[str]]:
    """Return the findings of a rule, by the name of the file."""
    return {name_of(path): found for path in paths if (found := rule(parse(path)))}


def test_files_are_short() -> None:
    long = {name_of(path): lines for path in SOURCES if (lines := len(path.read_text().splitlines())) > MAX_LINES}
    assert {name: lines for name, lines in long.items() if name not in DECLARATIONS} == {}, (
        f"split what is longer than {MAX_LINES} lines"
    )


def test_nothing_unsafe() -> None:
    assert findings(unsafe, SOURCES) == {}


def test_init_holds_public_names_only() -> None:
    assert findings(not_public_names, (path for path in SOURCES if path.name == "__init__.py")) == {}


@pytest.mark.parametrize("machine", MACHINES)
def test_state_machine_is_pure(machine: str) -> None:
    assert findings(impure, state_machine_files(machine)) == {}


@pytest.mark.parametrize(
    ("machine", "parts"),
    [("controller", [Controller, *Part.__subclasses__()]), ("worker", [Worker, Contact, Incoming, Outgoing, Tasks])],
    ids=["controller", "worker"],
)
def test_every_part_of_a_state_machine_is_checked(machine: str, parts: list[type]) -> None:
    """A part that moves to another folder does not leave the check."""
    files = {inspect.getsourcefile(part) for part in parts}
    assert len(files) > 4
    assert files <= set(map(str, state_machine_files(machine)))


def test_only_commands_know_the_terminal() -> None:
    others = (path for path in SOURCES if path.parent != PACKAGE / "cli")
    assert findings(lambda tree: roots(tree) & TERMINAL_MODULES, others) == {}


def test_catalogs_are_plain_data() -> None:
    plain = {"__future__", "barnraise", "collections", "dataclasses", "enum", "typing"}
    assert findings(lambda tree: roots(tree) - plain, (path for path in SOURCES if path.name == "catalog.py")) == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "def f():\n    from pickle import loads",
        "import torch\ntorch.load(path)",
        "from torch import load",
        "eval(text)",
        "exec(text)",
        "import yaml\nyaml.load(text)",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
        "import yaml\nyaml.unsafe_load(text)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "subprocess.run(command, shell=flag)",
        "AutoModel.from_pretrained(path, trust_remote_code=True)",
        "socket.recv_pyobj()",
    ],
)
def test_unsafe_notices(code: str) -> None:
    assert unsafe(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "model.eval()",
        "torch.compile(model)",
        "yaml.safe_load(text)",
        "yaml.load(text, Loader=yaml.SafeLoader)",
        "class Strict(yaml.SafeLoader): ...\nyaml.load(text, Loader=Strict)",
        "np.load(path, allow_pickle=False)",
    ],
)
def test_unsafe_lets_pass(code: str) -> None:
    assert unsafe(ast.parse(code)) == []


def half_caught(tree: ast.AST) -> list[str]:
    """Handlers that miss strings which are not UTF-8 and values that are nested too deeply: `core.decoding` has all."""
    caught = (
        dotted(node)
        for handler in walk(tree)
        if isinstance(handler, ast.ExceptHandler) and handler.type
        for node in ast.walk(handler.type)
    )
    return [name for name in caught if name in {"msgspec.MsgspecError", "msgspec.DecodeError"}]


def test_every_exception_of_a_decoder_is_caught() -> None:
    assert findings(half_caught, SOURCES) == {}


@pytest.mark.parametrize("caught", ["msgspec.MsgspecError", "(OSError, msgspec.DecodeError)"])
def test_half_caught_notices(caught: str) -> None:
    assert half_caught(ast.parse(f"try: ...\nexcept {caught}: ...")) != []


@pytest.mark.parametrize(
    "code",
    [
        "def train(): ...",
        "class Rule: ...",
        "X = compute()",
        "print('hello')",
        "for x in y: ...",
        "if TYPE_CHECKING:\n    x = 1",
    ],
)
def test_init_rule_notices(code: str) -> None:
    assert not_public_names(ast.parse(code))


def test_init_rule_lets_pass() -> None:
    code = '"""Doc."""\nfrom .a import b\n__all__ = ["b"]\ndef create(name):\n    return b.create(name)'
    assert not_public_names(ast.parse(code)) == []


@pytest.mark.parametrize(
    "code",
    ["import time", "from torch import nn", "import asyncio", "async def f(): ...", "open(path)"],
)
def test_impure_notices(code: str) -> None:
    assert impure(ast.parse(code))
