"""A roster of members: the nodes whose updates a trustee's owner lets into sums, in a file of its own.

    # members of run barn, as their owners told them
    8a02...07 ann Ann Miller
    ...

A line has the node's key of signatures (64 hexadecimal digits), its name, and its owner. Empty lines and those that
begin with # are ignored. With such a roster a host cannot invent members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from barnraise.core.errors import InputError
from barnraise.core.units import count_text

from .roster import is_key, read_roster, roster_lines

_FORM = "a key of 64 hexadecimal digits, the name of the node, and its owner, as the worker's `join` prints them"


def member_line(node: str, signer: str, owner: str) -> str:
    """Return the line of a member."""
    return f"{signer} {node} {owner}"


@dataclass(frozen=True)
class MemberRoster:
    """The signing key of each member by its node; `source` names the file."""

    keys: Mapping[str, str]
    source: str

    @classmethod
    def read(cls, path: Path) -> MemberRoster:
        """Read the file; InputError where it cannot be read, or has a wrong line."""
        return cls.parse(read_roster(path), str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> MemberRoster:
        """Return the roster in `text`; InputError names the first wrong line of `source`."""
        keys, nodes = dict[str, str](), dict[str, str]()
        for where, words in roster_lines(text, source, 3):
            if len(words) < 3 or not is_key(words[0]):
                raise InputError(f"{where} is no member: write {_FORM}")
            key, node = words[0].lower(), words[1]
            if node in keys:
                raise InputError(
                    f"{where} names {node} a second time: keep the line with the key that its owner told you"
                )
            if key in nodes:
                raise InputError(f"{where} has the key of {nodes[key]}: a machine is one member; keep one of the lines")
            keys[node], nodes[key] = key, node
        return cls(keys, source)

    def require(self, least: int) -> None:
        """Refuse a roster without enough members for one sum; InputError."""
        if len(self.keys) < least:
            raise InputError(
                f"{self.source} names {count_text(len(self.keys), 'member')}, but a sum of this run has {least} or "
                "more: add the lines that their owners told you"
            )
