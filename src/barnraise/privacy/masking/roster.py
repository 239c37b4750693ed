"""A roster: the trustees that a worker's owner accepts, by their public keys, in a file of its own.

    # trustees of run barn, as their owners told them
    colluding 1
    3f9c...e1 8a02...07 t1 Ann Miller
    ...

A line has the key that seeds are sealed to, the key of signatures (64 hexadecimal digits each), the name of the node,
and its owner. `colluding` is how many may collude. Empty lines and those that begin with # are ignored. With a roster a
host cannot name trustees of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from barnraise.core.errors import InputError
from barnraise.core.text import printable
from barnraise.core.units import count_text

from .committee import Committee, TrusteeKeys

MOST_BYTES = 1 << 16
COLLUDING = "colluding"
_FORM = "two keys of 64 hexadecimal digits, the name of the node, and its owner, as the trustee's `join` prints them"
_KEY = re.compile(r"[0-9a-fA-F]{64}")
_ADVICE = "ask the owners of the trustees, not the host alone, and give a roster that you agree with"


def read_roster(path: Path) -> str:
    """Return the text of a roster's file; InputError where it cannot be read, or is too long."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"the roster {path} cannot be read: {error.strerror}; give the path of a file") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"the roster {path} has more than {MOST_BYTES} bytes; give a line for each node")
    return content.decode("utf-8", "replace")


def roster_lines(text: str, source: str, most_words: int) -> Iterator[tuple[str, list[str]]]:
    """Yield each line that is not empty and no comment: where it is, and its words, of which the last is the rest."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        words = line.split(maxsplit=most_words - 1)
        if words and not words[0].startswith("#"):
            yield f"{source}, line {number}: {printable(line.strip(), 80)!r}", words


def is_key(word: str) -> bool:
    """Return whether the word is a public key: 64 hexadecimal digits."""
    return _KEY.fullmatch(word) is not None


def line_of(keys: TrusteeKeys, owner: str) -> str:
    """Return the line of a trustee."""
    return f"{keys.sealing} {keys.signer} {keys.name} {owner}"


@dataclass(frozen=True)
class TrusteeRoster:
    """The committee that a roster names, and the owner of each trustee; `source` names the file."""

    committee: Committee
    owners: tuple[str, ...]
    source: str

    @classmethod
    def read(cls, path: Path) -> TrusteeRoster:
        """Read the file; InputError where it cannot be read, or names no committee that can hold."""
        return cls.parse(read_roster(path), str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> TrusteeRoster:
        """Return the roster in `text`; InputError names the first wrong line of `source`."""
        keys, owners, colluding = list[TrusteeKeys](), list[str](), 0
        for where, words in roster_lines(text, source, 4):
            if words[0] == COLLUDING:
                if colluding or len(words) != 2 or not re.fullmatch(r"[1-9][0-9]?", words[1]):
                    raise InputError(f"{where} must be one line such as: {COLLUDING} 1")
                colluding = int(words[1])
            elif len(words) == 4 and all(map(is_key, words[:2])):
                keys.append(TrusteeKeys(words[2], signer=words[1].lower(), sealing=words[0].lower()))
                owners.append(printable(words[3].strip(), 100))
            else:
                raise InputError(f"{where} is no trustee: write {_FORM}")
        if not colluding:
            raise InputError(f"{source} does not say how many trustees may collude: add the line `{COLLUDING} 1`")
        try:
            found = cls(Committee(tuple(keys), colluding), tuple(owners), source)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
        found._require_owners()
        return found

    def refuse(self, committee: Committee) -> str:
        """Say why a run's committee is not that of this roster; empty when it is."""
        if committee.collude != self.committee.collude:
            return (
                f"{count_text(committee.collude, 'trustee')} of the run may collude, but {self.source} says "
                f"{self.committee.collude}: {_ADVICE}"
            )
        mine, theirs = set(self.committee.trustees), set(committee.trustees)
        strangers, missing = (sorted(one.name for one in some) for some in (theirs - mine, mine - theirs))
        if not strangers and not missing:
            return ""
        told = [
            f"trustees {', '.join(strangers)} of the run are not in {self.source} with these keys" if strangers else "",
            f"trustees {', '.join(missing)} of {self.source} have no seat" if missing else "",
        ]
        return f"{' and '.join(part for part in told if part)}: {_ADVICE}"

    def _require_owners(self) -> None:
        """Refuse a roster in which one owner has more trustees than may collude."""
        counts = Counter(owner.casefold() for owner in self.owners)
        for owner in self.owners:
            if (count := counts[owner.casefold()]) > self.committee.collude:
                raise InputError(
                    f"{self.source}: {count} of {self.committee.size} trustees belong to '{owner}', at most "
                    f"{self.committee.collude} may, since one owner's trustees can pool their seeds; find other owners "
                    f"for {count - self.committee.collude}"
                )
