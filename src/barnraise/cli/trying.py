"""`barnraise try RUN_DIR`: a user's own formula or text for a run's model, once or as a conversation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.core.errors import InputError

if TYPE_CHECKING:
    from barnraise.assembly.trying import FormulaTrial, TextTrial

MAX_TOKENS = 100_000
DIMACS = (".cnf", ".dimacs")
VERDICTS = {True: "satisfiable", False: "unsatisfiable", None: "no verdict"}


def try_(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROMPT]",
            help="A formula, as '(1 or -2) and 3', a DIMACS file (FILE.cnf), or the beginning of a text; asked for "
            "on a terminal if left out.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Read the formula (DIMACS) or the text from a file.", show_default=False)
    ] = None,
    formula: Annotated[
        str | None, typer.Option(help="A formula, as '(1 or -2) and 3'.", metavar="TEXT", show_default=False)
    ] = None,
    draw: Annotated[bool, typer.Option("--draw", help="Draw a held-out formula.")] = False,
    tokens: Annotated[int, typer.Option(help="Most tokens to write behind a text.", min=1, max=MAX_TOKENS)] = 200,
    temperature: Annotated[
        float, typer.Option(help="0 writes the likeliest text; higher is more varied.", min=0.0, max=10.0)
    ] = 0.8,
    seed: Annotated[int, typer.Option(help="For --draw and for a temperature above 0.", min=0)] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Try a run's model, while the run works or after it ended.

    A model of satisfiability solves a formula: its trace is shown in full, with what the independent checker says of
    it, and the verdict of CaDiCaL (with the extra `sat`, else of barnraise's solver). A model of text
    continues a text. Without a PROMPT, a file, a formula or --draw the command asks for one after the other on a
    terminal; an empty formula draws one, Ctrl-D ends.
    """
    if sum((prompt is not None, file is not None, formula is not None, draw)) > 1:
        raise InputError("give one of PROMPT, --file, --formula and --draw")
    if prompt is not None and prompt.lower().endswith(DIMACS):
        file, prompt = Path(prompt), None
    from barnraise.ledger import RunDirectory

    run = RunDirectory.open(run_dir).require_real("try")
    from transformers.utils import logging

    from barnraise.assembly.trying import FormulaTrial, opened

    logging.disable_progress_bar()
    given = _given(prompt if formula is None else formula, file)
    with opened(run, warn=console.warn) as trial:
        if isinstance(trial, FormulaTrial):
            answer = _formulas(trial, json, "<text>" if file is None else str(file))
        elif draw or formula is not None:
            option = "--draw" if draw else "--formula"
            raise InputError(f"{option} is for formulas, but this model was trained on text; give a text's beginning")
        else:
            answer = _texts(trial, tokens, temperature, json)
        if given is not None or draw:
            answer(given or "", seed)
        else:
            _converse(trial, answer, seed)


def _given(prompt: str | None, file: Path | None) -> str | None:
    """Return the text of the argument, of the file, or of standard input where that is no terminal."""
    if file is None:
        return prompt if prompt is not None or sys.stdin.isatty() else sys.stdin.read()
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"{file} cannot be read ({reason}); give a DIMACS file or a text") from None
    if not text.strip():
        raise InputError(f"{file} is empty; give a DIMACS file or a text")
    return text


def _formulas(trial: FormulaTrial, json: bool, source: str) -> Callable[[str, int], None]:
    """Return a function that solves one formula and prints the result, and draws one for an empty text.

    `source` names the formula in messages.
    """

    def answer(text: str, seed: int) -> None:
        from barnraise.data.sat.formula_text import parse

        formula = parse(text, source) if text.strip() else trial.held_out(seed)
        solved = trial.solve(formula)
        if json:
            console.emit_json(solved.as_json())
            return
        truth, claims = solved.ruling.satisfiable, solved.claims
        right = "" if truth is None else " (right)" if claims is truth else " (wrong)"
        console.say(solved.shown)
        if solved.unlike:
            console.note(f"note: {solved.unlike}; expect mistakes")
        console.say(f"model: {VERDICTS[claims]}{right}")
        console.say(f"{solved.ruling.solver}: {VERDICTS[truth]}")

    return answer


def _texts(trial: TextTrial, tokens: int, temperature: float, json: bool) -> Callable[[str, int], None]:
    """Return a function that continues one text and prints it."""

    def answer(text: str, turn: int) -> None:
        written = trial.complete(text, tokens=tokens, temperature=temperature, seed=turn)
        if json:
            console.emit_json({"prompt": text, "completion": written})
        else:
            console.say(text + written)

    return answer


def _converse(trial: FormulaTrial | TextTrial, answer: Callable[[str, int], None], seed: int) -> None:
    """Ask for one prompt after the other until Ctrl-D; an unreadable one is reported, and asked for again."""
    from barnraise.assembly.trying import FormulaTrial

    label = "formula" if isinstance(trial, FormulaTrial) else "text"
    if isinstance(trial, FormulaTrial):
        console.note(f"Type a formula ({trial.fits}), as: (1 or -2) and 3. Enter alone draws one, Ctrl-D ends.")
    else:
        console.note("Type the beginning of a text. Ctrl-D ends.")
    while True:
        try:
            text = input(f"{label}> ")
        except EOFError:
            console.note("")
            return
        try:
            answer(text, seed)
        except InputError as error:
            console.fail(str(error))
        seed += 1
