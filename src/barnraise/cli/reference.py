"""`python -m barnraise.cli.reference [FOLDER]`: writes the generated pages of the documentation into docs/."""

from __future__ import annotations

import sys
from pathlib import Path

from barnraise.cli import console
from barnraise.plan.reference import configuration_page, schema_text


def write(folder: Path) -> list[Path]:
    """The pages, written anew."""
    pages = {"configuration.md": configuration_page(), "run-file.schema.json": schema_text()}
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages]


if __name__ == "__main__":
    for page in write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs")):
        console.say(str(page))
