"""Writes a run file with the keys' own names in place of other spellings, with its comments.

The text is changed where it has such a spelling, and nowhere else: a key is renamed, or moved with its value and its
comments to the section that it belongs to. The result is read again, and must give the same run file.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import yaml

from barnraise.config.aliases import canonical
from barnraise.config.document import compose, parse
from barnraise.config.load import build
from barnraise.config.problems import Path
from barnraise.config.schema import RunFile
from barnraise.core.errors import RunFileError

WIDTH = 120
"""Letters of a line, beyond which a section is written with a key on each line."""

_INDENT = "  "
_UNUSUAL = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Breaks of lines that YAML and Python do not count alike."""


class Upgraded(NamedTuple):
    """A run file's text with the keys' own names; `commented` unless its comments had to be dropped."""

    text: str
    commented: bool = True


def upgraded(text: str, name: str = "run file") -> Upgraded:
    """`text` with each key under its own name. The result loads as the same run file.

    Comments are dropped where the text refers to parts of itself (`*name`) or is a single flow mapping. RunFileError
    where `text` is no sound run file; `name` is for its message.
    """
    document = parse(text, name)
    wanted, given = build(document), canonical(document.content)
    if not given.spelled:
        return Upgraded(text)
    rewritten = _moved(_renamed(text.replace("\r\n", "\n")))
    if _same(rewritten, wanted):
        return Upgraded(rewritten)
    content = {section: keys for section, keys in given.content.items() if keys != {}}
    return Upgraded(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=WIDTH), commented=False)


def _same(text: str, wanted: RunFile) -> bool:
    """Whether `text` is that run file, without another spelling of a key."""
    try:
        document = parse(text)
        return not canonical(document.content).spelled and build(document) == wanted
    except RunFileError:
        return False


def _spelled(text: str) -> list[tuple[Path, Path]]:
    """(spelling, key) of each spelling that there is."""
    return [(spelling, key) for key, spelling in canonical(parse(text).content).spelled.items()]


def _root(text: str) -> yaml.MappingNode:
    root = compose(text)
    assert isinstance(root, yaml.MappingNode), "a text that `parse` has taken"
    return root


def _renamed(text: str) -> str:
    """The text, with spellings of keys of the same section replaced by the keys."""
    root, changes = _root(text), []
    for spelling, key in _spelled(text):
        if spelling[:-1] == key[:-1]:
            mark = _key_node(root, spelling)
            changes.append((mark.start_mark.index, mark.end_mark.index, str(key[-1])))
    for start, end, name in sorted(changes, reverse=True):
        text = text[:start] + name + text[end:]
    return text


def _key_node(node: yaml.Node, path: Path) -> yaml.Node:
    found = node
    for part in path:
        if isinstance(part, int):
            found = node = node.value[part]
        else:
            found, node = next((key, value) for key, value in node.value if key.value == part)
    return found


def _moved(text: str) -> str:
    """The text, with spellings in other sections moved to where their keys belong; "" where it has no known form."""
    root = _root(text)
    if root.flow_style or any(letter in text for letter in _UNUSUAL):
        return ""
    page = _Page(text, root)
    for spelling, key in _spelled(text):
        page.move(str(spelling[0]), str(spelling[1]), str(key[0]), str(key[1]))
    return page.written()


@dataclass(frozen=True)
class _WrittenKey:
    """A key and its value: `lines` without the section's indentation, the `comments` above, and at which `place` of the
    text it stood."""

    place: int
    lines: tuple[str, ...]
    comments: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether it may stand in a flow mapping."""
        return not self.comments and len(self.lines) == 1 and "#" not in self.lines[0]

    def indented(self, indent: str) -> list[str]:
        return [f"{indent}{line}" if line else line for line in (*self.comments, *self.lines)]


class _Section:
    """A section of a page: the entries that it has in flow form, those that leave it, and those that come."""

    def __init__(self, key: yaml.Node, node: yaml.Node) -> None:
        self.key, self.node = key, node
        self.block = isinstance(node, yaml.MappingNode) and not node.flow_style
        given = node.value if isinstance(node, yaml.MappingNode) else []
        self.values = {inner.value: (inner, value) for inner, value in given}
        self.gone: set[str] = set()
        self.added: list[_WrittenKey] = []


class _Page:
    """A run file's text in block form; keys move between its sections."""

    def __init__(self, text: str, root: yaml.MappingNode) -> None:
        self.text, self.lines = text, text.split("\n")
        self.pieces = [[line] for line in self.lines]  # what stands in the place of each line
        self.sections = {key.value: _Section(key, node) for key, node in root.value}
        self.new: dict[str, list[_WrittenKey]] = defaultdict(list)
        self.after: dict[str, _Section] = {}  # behind which section a new one comes

    def move(self, section: str, spelling: str, to: str, key: str) -> None:
        """Move a key to another section, under another name."""
        source = self.sections[section]
        entry = (self._from_block if source.block else self._from_flow)(source, spelling, key)
        source.gone.add(spelling)
        if to in self.sections:
            self.sections[to].added.append(entry)
        else:
            self.new[to].append(entry)
            self.after.setdefault(to, source)

    def written(self) -> str:
        """The text as it is then."""
        for section in self.sections.values():
            if section.gone or section.added:
                (self._write_block if section.block else self._write_flow)(section)
        spaced, order = "" in self.lines[:-1], list(RunFile.model_fields)
        for name in sorted(self.new, key=order.index):
            source = self.after[name]
            entries = sorted(self.new[name], key=lambda entry: entry.place)
            lines = _rendered(name, entries, flow=not source.block)
            line = self._last_line(source.node)
            above = [above for at in range(line + 1) for above in self.pieces[at]][-1:]
            apart = spaced and (source.block or len(lines) > 1) and above and above[0].strip()
            headed = above and above[0].startswith("#")
            self.pieces[line] += ["", *lines] if apart and not headed else lines
        return "\n".join(line for piece in self.pieces for line in piece)

    def _write_block(self, section: _Section) -> None:
        first, last = section.key.start_mark.line, self._last_line(section.node)
        column = section.node.value[0][0].start_mark.column
        self.pieces[last] += [
            line
            for entry in sorted(section.added, key=lambda entry: entry.place)
            for line in entry.indented(" " * column)
        ]
        end = last + 1
        while end < len(self.lines) and re.match(r"\s+#", self.lines[end]):
            end += 1  # what is commented out belongs to the section
        if not any(line.strip() for at in range(first + 1, end) for line in self.pieces[at]):
            comment = re.match(r"\s*:\s*(#.*)", self.lines[first][section.key.end_mark.column :])
            self.pieces[first:end] = [[comment[1]] if comment else [], *([] for _ in range(first + 1, end))]

    def _write_flow(self, section: _Section) -> None:
        kept = [self._from_flow(section, name, name) for name in section.values if name not in section.gone]
        start, end = section.key.start_mark, section.node.end_mark
        lines = _rendered(section.key.value, [*kept, *sorted(section.added, key=lambda entry: entry.place)], flow=True)
        rest = self.text[end.index :].partition("\n")[0]
        head = (lines[0] if lines else "") + rest
        self.pieces[start.line] = [head.lstrip(), *lines[1:]] if head.strip() else []
        for at in range(start.line + 1, end.line + 1):
            self.pieces[at] = []

    def _from_block(self, section: _Section, spelling: str, name: str) -> _WrittenKey:
        """An entry of a section in block form, taken out of the page."""
        key, value = section.values[spelling]
        first, last, column = key.start_mark.line, self._last_line(value), key.start_mark.column
        comments = _comments(self.lines[section.key.start_mark.line + 1 : first])
        top = first - len(comments)
        lines = [name + self.text[key.end_mark.index :].partition("\n")[0]]
        lines += [line[min(column, len(line) - len(line.lstrip())) :] for line in self.lines[first + 1 : last + 1]]
        for at in range(top, last + 1):
            self.pieces[at] = []
        return _WrittenKey(key.start_mark.index, tuple(lines), comments)

    def _from_flow(self, section: _Section, spelling: str, name: str) -> _WrittenKey:
        """An entry of a section in flow form; a comment behind it comes along."""
        key, value = section.values[spelling]
        text = " ".join(line.strip() for line in self.text[value.start_mark.index : value.end_mark.index].split("\n"))
        rest = self.text[value.end_mark.index : section.node.end_mark.index].partition("\n")[0]
        comment = re.match(r"\s*,?\s*(#.*)", rest)
        before = self.text[section.node.start_mark.index : key.start_mark.index].split("\n")[1:-1]
        line = f"{name}: {text}{f'  {comment[1]}' if comment else ''}"
        return _WrittenKey(key.start_mark.index, (line,), _comments(before))

    def _last_line(self, node: yaml.Node) -> int:
        """The last line on which something of the node stands."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style:
            last = node.value[-1]
            return self._last_line(last[1] if isinstance(last, tuple) else last)
        line: int = node.end_mark.line
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            line -= 1
            while not self.lines[line].strip():
                line -= 1
        return line


def _comments(lines: list[str]) -> tuple[str, ...]:
    """The comments at the end of `lines`: those that stand above a key. A key that is commented out is none."""
    found = takewhile(lambda line: re.match(r"\s*#( |$)", line), reversed(lines))
    return tuple(line.strip() for line in found)[::-1]


def _rendered(name: str, entries: Iterable[_WrittenKey], *, flow: bool) -> list[str]:
    """A section's lines, none for one without entries: one line in flow form if that is wanted, and they fit."""
    entries = list(entries)
    line = f"{name}: {{{', '.join(entry.lines[0] for entry in entries)}}}"
    if not entries or (flow and len(line) <= WIDTH and all(entry.plain for entry in entries)):
        return [line] if entries else []
    return [f"{name}:", *(line for entry in entries for line in entry.indented(_INDENT))]
