"""`python -m barnraise.cli.reference [FOLDER]`: writes the generated pages of the documentation into docs/."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from barnraise.cli import console, reference_pages
from barnraise.plan.reference import configuration_page, schema_text

PAGES: dict[str, Callable[[], str]] = {
    "reference/run-file.md": configuration_page,
    "reference/run-file.schema.json": schema_text,
    **reference_pages.PAGES,
}
"""The generated files by their paths below docs/."""


def write(folder: Path) -> list[Path]:
    """Write the generated pages below `folder`, and return their paths."""
    for name, text in PAGES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text(), encoding="utf-8")
    return [folder / name for name in PAGES]


if __name__ == "__main__":
    for page in write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs")):
        console.say(str(page))
