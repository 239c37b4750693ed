"""A rich console that shows whatever is given to it: nothing in a text moves the cursor, or turns the line around."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from barnraise.core.text import visible


class Screen(Console):
    """Its own control codes alone reach the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of `renderable`; those that are text, made harmless."""
        for segment in super().render(renderable, options):
            text = segment.text
            yield segment if segment.control or text.isprintable() else Segment(visible(text), segment.style)
