"""A run file as YAML: its values, and the line of each.

Numbers follow YAML 1.2 where 1.1 surprises (`1e-3` is a number, `no` and `12:30` are text), and digits may be grouped
(`2_000_000`). Duplicate keys, tags and anything deep or large enough to be no run file are refused.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml

from barnraise.config.problems import Path, Problem, refusal
from barnraise.core.errors import RunFileError, nearest

MAX_BYTES = 256 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 40
MAX_COMPOSED = 100
"""Levels that are read at all, so that those beyond MAX_DEPTH are told with their line."""

_TAG = "tag:yaml.org,2002:"
_TAGS = {"map", "seq", "str", "null", "bool", "int", "float"}
_DIGITS, _INFINITE = "[0-9][0-9_]*", r"\.(inf|Inf|INF|nan|NaN|NAN)"
_NUMBERS = list("-+.0123456789")
_PLAIN = {
    sort: (re.compile(rf"^(?:{pattern})$"), first)
    for sort, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("int", r"[-+]?(0|[1-9][0-9_]{0,40})([eE]\+?[0-9]{1,2})?|0x[0-9a-fA-F]{1,40}", _NUMBERS),
        ("float", rf"[-+]?(({_DIGITS}\.[0-9_]*|\.[0-9]+|{_DIGITS}(?=[eE]))([eE][-+]?[0-9]+)?|{_INFINITE})", _NUMBERS),
    )
}
"""Types of scalars without quotes, by pattern and first letters; all others are text."""


class _Loader(yaml.SafeLoader):
    """Composes nodes only; scalars are typed by `_PLAIN` and read by `_scalar`.

    Raises RecursionError beyond MAX_COMPOSED levels, whatever the interpreter's own limit is.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_COMPOSED:
            raise RecursionError
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {}


for _sort, (_pattern, _first) in _PLAIN.items():
    _Loader.add_implicit_resolver(_TAG + _sort, _pattern, _first)


@dataclass(frozen=True)
class Document:
    """A parsed run file or matrix.

    `name` is for messages; `lines` counts from 1 and is empty when there was no file.
    """

    name: str
    content: dict[str, Any]
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int | None:
        """Return the line of `path`, or of its nearest parent that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def read(path: str | os.PathLike[str]) -> Document:
    """Read the run file at `path`; RunFileError when it is missing, too large, or not YAML."""
    file = FilePath(path)
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise RunFileError(f"there is no run file {file}{_near(file)}") from None
    except IsADirectoryError:
        raise RunFileError(f"{file} is a folder; give the run file in it{_near(file / 'run.yaml')}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunFileError(f"{file} cannot be read ({reason}); check the path and its permissions") from error
    if len(content) > MAX_BYTES:
        raise RunFileError(f"{file} has more than {MAX_BYTES} bytes, too many for a run file; check the path")
    return parse(content, str(file))


def parse(content: str | bytes, name: str = "run file") -> Document:
    """Parse `content` as YAML; RunFileError with the line otherwise."""
    text = _decoded(content, name) if isinstance(content, bytes) else content
    reader = _Reader()
    try:
        root = compose(text)
        value = reader.value(root, (), 0) if root is not None else None
    except yaml.MarkedYAMLError as error:
        raise refusal(name, [_syntax(error)]) from error
    except (yaml.YAMLError, RecursionError) as error:
        reason = str(error).splitlines()[0] if isinstance(error, yaml.YAMLError) else "too deeply nested"
        raise refusal(name, [Problem((), f"not YAML: {reason}")]) from error
    if reader.problems:
        raise refusal(name, reader.problems)
    if value is None:
        raise RunFileError(f"{name} is empty; `barnraise init` writes a run file to start from")
    if not isinstance(value, dict):
        raise RunFileError(f"{name} is not a run file: it must hold sections such as `model:` and `data:`")
    return Document(name, value, reader.lines)


def compose(text: str) -> yaml.Node | None:
    """`text` as YAML nodes, which know where they stand; None where there are none. Raises yaml.YAMLError."""
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def parse_value(text: str) -> Any:
    """Parse one value as it would follow a key in a run file; RunFileError when it is not YAML."""
    return parse(f"value: {text}", "value").content["value"]


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        reason = f"byte 0x{content[error.start]:02x} is not UTF-8 text; a run file is plain text"
        raise refusal(name, [Problem((), reason, line)]) from error


class _Reader:
    """Turns YAML nodes into values, and records lines and problems."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.problems: list[Problem] = []
        self.num_nodes = 0

    def value(self, node: yaml.Node, path: Path, depth: int) -> Any:
        self.num_nodes += 1
        if self.num_nodes > MAX_NODES or depth > MAX_DEPTH:
            limit = f"{MAX_NODES} values" if depth <= MAX_DEPTH else f"{MAX_DEPTH} levels"
            raise yaml.MarkedYAMLError(problem=f"more than {limit}", problem_mark=node.start_mark)
        self.lines.setdefault(path, _line(node))
        sort = node.tag.removeprefix(_TAG)
        if sort not in _TAGS or (sort in _PLAIN and not _PLAIN[sort][0].match(node.value)):
            self.problems.append(Problem(path, f"the tag {node.tag} is not allowed; write a plain value", _line(node)))
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*path, index), depth + 1) for index, child in enumerate(node.value)]
        return _scalar(node.value, sort)

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem(path, "a key must be a plain word", line))
                continue
            key = key_node.value
            if key in result:
                first = self.lines[(*path, key)]
                self.problems.append(Problem((*path, key), f"given twice, first on line {first}; keep one", line))
                continue
            self.lines[(*path, key)] = line
            result[key] = self.value(value_node, (*path, key), depth + 1)
        return result


def _scalar(text: str, sort: str) -> Any:
    match sort:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return _integer(text.replace("_", "").lower())
        case "float":
            return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _integer(text: str) -> int:
    if text.startswith("0x"):
        return int(text, 16)
    digits, _, exponent = text.partition("e")
    value: int = int(digits) * 10 ** int(exponent or 0)
    return value


def _line(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1


def _syntax(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    what = (error.problem or "cannot be read").replace("\t", "\\t")
    hint = "; indent with spaces, not tabs" if "\\t" in what else ""
    while_ = f" ({error.context})" if error.context else ""
    return Problem((), f"not YAML: {what}{while_}{hint}", mark.line + 1 if mark else None)


def _near(file: FilePath) -> str:
    """Return a hint at the file that was probably meant."""
    folder = file.parent
    if not folder.is_dir():
        return f": there is no folder {folder}"
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.suffix in (".yaml", ".yml"))
    except OSError:
        names = []
    close = nearest(file.name, names)
    if close:
        return f"; did you mean {folder / close}?"
    if names:
        return f"; {folder.resolve()} holds {', '.join(names[:5])}"
    return "; `barnraise init` writes one"
