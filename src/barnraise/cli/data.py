"""`barnraise data`: makes datasets, solves and checks formulas, shows the content of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from barnraise.cli import console
from barnraise.cli.preview import preview
from barnraise.core.units import bytes_text

data = typer.Typer(help="Make and check datasets.", add_completion=False, no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the dataset goes.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]


@data.command()
def sat(
    folder: Folder,
    variables: Annotated[tuple[int, int], typer.Option(help="Fewest and most variables.")] = (4, 4),
    clause_ratio: Annotated[float, typer.Option(help="Clauses per variable.")] = 2.0,
    clause_lengths: Annotated[tuple[int, int], typer.Option(help="Fewest and most literals a clause.")] = (1, 3),
    family: Annotated[str, typer.Option(help="random, skewed, marginal or crafted.")] = "random",
    style: Annotated[
        str, typer.Option(help="How traces are written: terse, restated, trail or trail_steps.")
    ] = "restated",
    heuristic: Annotated[
        str, typer.Option(help="How the solver decides: first, shortest, two_sided or lowest.")
    ] = "first",
    prompt: Annotated[str, typer.Option(help="The tokens of a formula: clauses or literals.")] = "clauses",
    context: Annotated[int, typer.Option(help="Tokens a row; longer examples are left out.")] = 62,
    examples: Annotated[int, typer.Option(help="Training examples.")] = 40_000,
    held_out: Annotated[int, typer.Option(help="Held-out examples; no formula is in both.")] = 500,
    held_out_search: Annotated[
        int, typer.Option(help="A second held-out set, of formulas whose traces all take a decision back.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same dataset.")] = 0,
    json: Json = False,
) -> None:
    """Make a dataset of SAT formulas with the traces that a DPLL solver leaves on them."""
    from barnraise.data.sat import dataset as sat_data
    from barnraise.data.sat.options import SatOptions

    search = {"name": "search", "formulas": held_out_search, "backtracking": {"at_least": 1}}
    options = SatOptions.of(
        variables=variables,
        clause_ratio=clause_ratio,
        clause_lengths=clause_lengths,
        family=family,
        style=style,
        heuristic=heuristic,
        prompt=prompt,
        context=context,
        examples=examples,
        held_out=held_out,
        held_out_sets=[search] if held_out_search else [],
        seed=seed,
    )
    _describe(folder, sat_data.build(folder, options), json)


@data.command()
def text(
    folder: Folder,
    files: Annotated[list[str], typer.Argument(metavar="FILES", help="Files, folders or globs.", show_default=False)],
    tokenizer: Annotated[str, typer.Option(help="bytes, or the path of a Hugging Face tokenizer.")] = "bytes",
    context: Annotated[
        list[int], typer.Option(help="Tokens a row; give it again, ascending, for rows of several lengths.")
    ] = [128],  # noqa: B006
    held_out: Annotated[float, typer.Option(help="Share of the text kept for evaluation.")] = 0.05,
    seed: Annotated[int, typer.Option(help="The same seed gives the same dataset.")] = 0,
    json: Json = False,
) -> None:
    """Make a dataset of text."""
    from barnraise.data import text as text_data

    meta = text_data.build(folder, files, tokenizer=tokenizer, context=context, held_out=held_out, seed=seed)
    _describe(folder, meta, json)


@data.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A dataset.", show_default=False)],
    json: Json = False,
) -> None:
    """Check every file of a dataset against its digest, and say what it holds."""
    from barnraise.data.shards import Dataset

    _describe(folder, Dataset.open(folder, verify=True).meta, json)


data.command()(preview)


@data.command()
def solve(
    file: Annotated[Path, typer.Argument(metavar="FILE.cnf", help="A DIMACS file.", show_default=False)],
    trace: Annotated[bool, typer.Option("--trace", help="Print the trace too.")] = False,
    style: Annotated[str, typer.Option(help="How the trace is written, as in `data sat`.")] = "terse",
    heuristic: Annotated[str, typer.Option(help="How the solver decides, as in `data sat`.")] = "two_sided",
    json: Json = False,
) -> None:
    """Solve a DIMACS formula with the DPLL solver, and check its trace with the independent checker."""
    from barnraise.core.errors import RunFailedError
    from barnraise.data.sat import dimacs, dpll, traces

    formula = dimacs.read(file)
    result = dpll.solve(formula, style=style, heuristic=heuristic)
    valid, reason = traces.check(formula, result.trace, style=style)
    if not valid:
        raise RunFailedError(f"the checker does not accept the solver's own trace of {file}: {reason}")
    if json:
        content: dict[str, Any] = {"satisfiable": result.satisfiable, "model": result.model, "steps": len(result.trace)}
        console.emit_json(content | ({"trace": list(result.trace)} if trace else {}))
        return
    console.say("satisfiable" if result.satisfiable else "unsatisfiable")
    if result.model is not None:
        console.say(" ".join(map(str, result.model)))
    if trace:
        console.say(" ".join(result.trace))


def _describe(folder: Path, meta: Any, json: bool) -> None:
    from barnraise.data.lengths import named

    rows = sum(shard.rows for shard in meta.shards)
    size = sum(info.bytes for info in meta.contents())
    if json:
        console.emit_json(
            {
                "folder": str(folder), "kind": meta.kind, "rows": rows, "held_out": meta.held_out.rows,
                "context": meta.context, "lengths": meta.lengths, "tokens": meta.num_tokens,
                "vocab_size": meta.vocab_size, "bytes": size,
            }
        )  # fmt: skip
        return
    console.say(f"{folder}: {meta.kind}, tokenizer {meta.tokenizer}, {meta.vocab_size:,} token ids")
    console.say(
        f"  {rows:,} rows of {named(meta.lengths)} tokens to train on ({meta.num_tokens:,} tokens), "
        f"{meta.held_out.rows:,} of {meta.context} held out"
    )
    console.say(f"  {len(meta.shards)} shard{'s' * (len(meta.shards) != 1)}, {bytes_text(size)} in all")
