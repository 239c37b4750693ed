"""`barnraise init`: a commented run file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli import console
from barnraise.core.errors import RunFileError
from barnraise.core.program import program


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")] = Path("run.yaml"),
    preset: Annotated[
        str, typer.Option("--preset", help="The preset: chat, lora, pretrain, text, sat or lan.")
    ] = "sat",
    every: Annotated[bool, typer.Option("--all", help="Write every key, with its meaning, range and default.")] = False,
) -> None:
    """Write a commented run file to start from.

    chat: fine-tune a model in a folder on conversations, with adapters. lora: the same on text. pretrain: train a GPT-2
    of 124M parameters from scratch. text: a small one on the text in a folder. sat: learn to solve satisfiability. lan:
    the same by workers on other machines. A file that exists is never overwritten.
    """
    from barnraise.config.template import preset as values_of
    from barnraise.config.template import render, short, to_fill_in
    from barnraise.plan.names import names

    content = render(preset, names()) if every else short(preset)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(content)
    except FileExistsError:
        raise RunFileError(f"{file} exists, and is left as it is; name another file, or remove it first") from None
    except OSError as error:
        raise RunFileError(f"{file} cannot be written ({error.strerror}); name a file in another folder") from error
    command = "train" if values_of(preset).get("workers") else "serve"
    console.say(f"wrote {file}")
    if missing := to_fill_in(preset):
        console.say(f"fill in {missing}")
    console.say(f"next: {program()} check {file}, then {program()} {command} {file}")
