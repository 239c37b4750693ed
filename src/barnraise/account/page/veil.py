"""The names that a reader may see: a host sees all, an observer numbers in place of names, and no addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable

from barnraise.core.text import LONGEST_NAME, printable

LONGEST_TEXT = 400
"""Characters of a sentence on a page."""

_ADDRESS = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){3,}|(?:tcp|https?)://[^\s,;]+"
)


class Veil:
    """Shows names and sentences as they are, without control characters and of bounded length."""

    hides = False

    def name(self, node: str) -> str:
        """Return a node's name to show."""
        return printable(node, LONGEST_NAME)

    def text(self, text: str) -> str:
        """Return a sentence to show."""
        return printable(text, LONGEST_TEXT)


class Hiding(Veil):
    """Shows a number in place of each node's name, and no addresses.

    >>> hidden = Hiding(["ann", "annabel"])
    >>> hidden.name("annabel"), hidden.text("annabel is gone: no word from 10.0.0.7; ann is back")
    ('worker 2', 'worker 2 is gone: no word from (address); worker 1 is back')
    """

    hides = True

    def __init__(self, nodes: Iterable[str]) -> None:
        self._shown = {node: f"worker {number}" for number, node in enumerate(nodes, 1)}
        told = {printable(node, LONGEST_NAME): shown for node, shown in self._shown.items()}
        self._told = told | {printable(node): shown for node, shown in self._shown.items()}
        longest = sorted((re.escape(name) for name in self._told if name), key=len, reverse=True)
        self._names = re.compile(rf"(?<![\w-])(?:{'|'.join(longest)})(?![\w-])") if longest else None

    def name(self, node: str) -> str:
        return self._shown.get(node, "a worker")

    def text(self, text: str) -> str:
        shown = printable(text, LONGEST_TEXT)
        if self._names is not None:
            shown = self._names.sub(lambda found: self._told[found[0]], shown)
        return _ADDRESS.sub("(address)", shown)
