"""`barnraise data preview RUN.yaml`: the examples of a run file as they are trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.core.units import count_text

if TYPE_CHECKING:
    from barnraise.assembly.previewing import PreviewedExample

OPEN, CLOSE = "\u27e6", "\u27e7"


def preview(
    run_file: Annotated[Path, typer.Argument(metavar="RUN.yaml", help="The run file.", show_default=False)],
    examples: Annotated[int, typer.Option(min=1, max=10_000, help="Examples to show.")] = 3,
    ids: Annotated[bool, typer.Option("--ids", help="List the tokens with their ids.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Print the first examples of a run file as they are trained: rendered, cut to a row, with what is learnt.

    Learnt tokens are between two brackets, and green on a terminal. Nothing is started or written.
    """
    from barnraise.assembly.previewing import previews
    from barnraise.config.document import read
    from barnraise.config.load import build

    found = previews(build(read(run_file)), examples)
    if json:
        console.emit_json({"examples": [_as_dict(example) for example in found]})
        return
    for number, example in enumerate(found, start=1):
        console.say(f"{number}. {sizes_of(example)}")
        _show(example)
        if ids:
            for place, token in enumerate(example.tokens):
                console.say(f"  {place:>6} {token.id:>8} {'learnt' if token.learnt else '-':<6} {token.text!r}")
        console.say()
    console.say(f"Tokens between {OPEN} and {CLOSE} are learnt. {count_text(len(found), 'example')} shown.")


def sizes_of(example: PreviewedExample) -> str:
    """Return the source and the sizes of an example."""
    cut = f"; {example.cut:,} more do not fit into a row" if example.cut else ""
    return f"{example.source}: {count_text(len(example.tokens), 'token')}, {example.learnt:,} of them learnt{cut}"


def marked(example: PreviewedExample) -> str:
    """Return the text of an example, learnt parts between brackets."""
    return "".join(f"{OPEN}{text}{CLOSE}" if learnt else text for text, learnt in example.parts)


def _show(example: PreviewedExample) -> None:
    if not sys.stdout.isatty():
        console.say(marked(example))
        return
    from rich.text import Text

    parts = [(f"{OPEN}{text}{CLOSE}", "green") if learnt else (text, "dim") for text, learnt in example.parts]
    console.console().print(Text.assemble(*parts))


def _as_dict(example: PreviewedExample) -> dict[str, object]:
    return {
        "source": example.source,
        "ids": [token.id for token in example.tokens],
        "learnt": [token.learnt for token in example.tokens],
        "tokens": [token.text for token in example.tokens],
        "parts": [{"text": text, "learnt": learnt} for text, learnt in example.parts],
        "cut": example.cut,
    }
