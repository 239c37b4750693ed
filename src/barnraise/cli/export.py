"""`barnraise export RUN_DIR`: a run's model in Hugging Face format, while it runs or afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.core.program import program

if TYPE_CHECKING:
    from barnraise.assembly.exporting import Exported


def tell(exported: Exported, *, json: bool) -> None:
    """Print the exported version and its folder."""
    if json:
        console.emit_json(
            {"model_dir": str(exported.folder), "version": exported.version, "newest_version": exported.newest}
        )
    else:
        console.say(f"version {exported.version} with {exported.model_size:,} parameters is in {exported.folder}")


def export(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    to: Annotated[
        Path | None, typer.Option(help="The folder to write; RUN_DIR/model or RUN_DIR/adapter by default.")
    ] = None,
    form: Annotated[
        str, typer.Option("--as", metavar="FORM", help="model, with adapters merged into it; or the adapter alone.")
    ] = "model",
    version: Annotated[int | None, typer.Option(help="A version with a checkpoint; the newest by default.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Write a run's model in Hugging Face format, with its tokenizer.

    Writes the newest version of which there is a checkpoint (with evaluation.average: the average up to it); at the end
    of a run that is its last. It loads with
    transformers: AutoModelForCausalLM.from_pretrained(FOLDER) and AutoTokenizer.from_pretrained(FOLDER).
    Adapters alone load with peft: PeftModel.from_pretrained(MODEL, FOLDER).
    """
    from barnraise.assembly.exporting import export_model
    from barnraise.ledger import RunDirectory

    exported = export_model(RunDirectory.open(run_dir), to, version, form=form, warn=console.warn)
    tell(exported, json=json)
    if json:
        return
    if version is None and exported.version < exported.newest:
        console.note(
            f"the run is at version {exported.newest}; newer versions are saved with its next checkpoint, or with: "
            f"{program()} resume {run_dir}"
        )
