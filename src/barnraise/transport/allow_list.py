"""A list of admitted keys: one a line, as 64 hexadecimal digits, then a space and a comment.

    # the lab
    3f9c...e1  ann's workstation

Empty lines and those that begin with # are ignored.
"""

from __future__ import annotations

import re

from zmq.utils import z85

from barnraise.core.errors import InputError
from barnraise.core.text import printable
from barnraise.transport.identity import is_public_key

DIGITS = 64
MOST_BYTES = 1 << 20
_FORM = "write 64 hexadecimal digits, then a space and a name, as in the line that a machine is told when it is refused"


def line_of(key: str, name: str) -> str:
    """Return the line for a public key (Z85) with a comment."""
    return f"{z85.decode(key.encode()).hex()} {name}"


def parse(text: str, source: str) -> frozenset[str]:
    """Return the keys (Z85) on the list.

    InputError names the first invalid line of `source`.
    """
    found = set()
    for number, line in enumerate(text.split("\n"), 1):
        word, *_ = line.split(maxsplit=1) or [""]
        if word and (not word.startswith("#") or is_public_key(word)):
            found.add(_key(word, f"{source}, line {number}: {printable(word, 80)!r}"))
    return frozenset(found)


def _key(word: str, where: str) -> str:
    if re.fullmatch(rf"[0-9a-fA-F]{{{DIGITS}}}", word):
        return z85.encode(bytes.fromhex(word)).decode()
    if is_public_key(word):
        raise InputError(f"{where} is a key in another form; write it as {z85.decode(word.encode()).hex()}")
    if re.fullmatch(r"[0-9a-fA-F]{8,}", word):
        raise InputError(f"{where} has {len(word)} digits, but a key has {DIGITS}: copy the whole of it")
    raise InputError(f"{where} is no key: {_FORM}")
