"""A rich console that shows text safely: nothing in it moves the cursor, or changes the line's direction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from barnraise.core.text import visible


class Screen(Console):
    """A console of which only its own control codes reach the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of `renderable`, with text made harmless."""
        for segment in super().render(renderable, options):
            text = segment.text
            yield segment if segment.control or text.isprintable() else Segment(visible(text), segment.style)
