"""The names and words that a reader may see: a host sees all, an observer numbers in place of names, and no free text.

Sentences about a run quote what nodes, files and other machines say: names, losses of workers, addresses, paths. No
filter finds all of them, so an observer gets other words instead.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnraise.core.text import LONGEST_NAME, printable

LONGEST_TEXT = 400
"""Characters of a sentence on a page."""


class Veil:
    """Shows names and sentences as they are, without control characters and of bounded length."""

    hides = False

    def name(self, node: str) -> str:
        """Return a node's name to show."""
        return printable(node, LONGEST_NAME)

    def text(self, text: str, instead: str = "") -> str:
        """Return a sentence to show; a veil that hides shows the words that are given `instead`."""
        return printable(text, LONGEST_TEXT)


class Hiding(Veil):
    """Shows a number in place of each node's name, and no sentence.

    >>> hidden = Hiding(["ann", "bob"])
    >>> hidden.name("bob"), hidden.name("a standby"), hidden.text("bob is gone: no word from 10.0.0.7", "it left")
    ('worker 2', 'a machine', 'it left')
    """

    hides = True

    def __init__(self, nodes: Iterable[str]) -> None:
        self._shown = {node: f"worker {number}" for number, node in enumerate(nodes, 1)}

    def name(self, node: str) -> str:
        return self._shown.get(node, "a machine")

    def text(self, text: str, instead: str = "") -> str:
        return instead
