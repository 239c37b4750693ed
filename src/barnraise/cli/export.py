"""`barnraise export RUN_DIR`: a run's model in Hugging Face format, while it runs or afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.core.program import program

if TYPE_CHECKING:
    from barnraise.assembly.exporting import Exported
    from barnraise.exports.round_trip import RoundTrip


def tell(exported: Exported, *, json: bool) -> None:
    """Print the exported version and its folder."""
    if json:
        checked = exported.checked
        console.emit_json(
            {
                "model_dir": str(exported.folder),
                "version": exported.version,
                "newest_version": exported.newest,
                "prompts": checked.prompts if checked else 0,
                "prompts_equal": checked.equal if checked else 0,
                "logits_differ": checked.spread if checked and checked.prompts else None,
            }
        )
    else:
        console.say(f"version {exported.version} with {exported.model_size:,} parameters is in {exported.folder}")
        if exported.checked is not None:
            console.say(_told(exported.checked))


def _told(checked: RoundTrip) -> str:
    """Return the result of the round trip as a sentence."""
    if not checked.prompts:
        return "round trip: no tokens were compared"
    told = f"round trip: {checked.equal} of {checked.prompts} prompts give the trained model's tokens"
    if checked.equal < checked.prompts:
        told += "; the others differ where rounding leaves two tokens alike"
    return f"{told}; logits differ by {checked.spread:.1g} of their standard deviation in the mean"


def export(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    to: Annotated[
        Path | None, typer.Option(help="The folder to write; RUN_DIR/model, /adapter or /gguf by default.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="FORM",
            help="model (or hf, merged), adapters merged into it; the adapter alone; or gguf, a file for others.",
        ),
    ] = "model",
    kind: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="f16 or q8_0: the type of a GGUF file's matrices.")
    ] = None,
    round_trip: Annotated[
        bool,
        typer.Option(help="Load the files and compare what they write with the trained model: twice its memory."),
    ] = True,
    version: Annotated[int | None, typer.Option(help="A version with a checkpoint; the newest by default.")] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The key file of a run whose updates are encrypted.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Write a run's model for other programs, and check that they get the model that was trained.

    Writes the newest version of which there is a checkpoint (with evaluation.average: the average up to it); at the end
    of a run that is its last. It loads with
    transformers: AutoModelForCausalLM.from_pretrained(FOLDER) and AutoTokenizer.from_pretrained(FOLDER).
    Adapters alone load with peft: PeftModel.from_pretrained(MODEL, FOLDER). A GGUF file loads with llama.cpp, and with
    Ollama by the Modelfile beside it. The export ends with a round trip: the written files continue ten held-out texts,
    and must write the tokens that the trained model writes. If they do not, nothing is written.
    """
    from barnraise.ledger import RunDirectory

    run = RunDirectory.open(run_dir)
    from barnraise.assembly.exporting import export_model

    exported = export_model(
        run,
        to,
        version,
        form=form,
        kind=kind,
        round_trip=round_trip,
        key_file=key,
        warn=console.warn,
    )
    tell(exported, json=json)
    if json:
        return
    if not round_trip:
        console.note("the files are not compared with the trained model; leave --no-round-trip out to do that")
    elif exported.checked is None:
        console.note("the files are not compared with the trained model: that is done for models that continue texts")
    if version is None and exported.version < exported.newest:
        console.note(
            f"the run is at version {exported.newest}; newer versions are saved with its next checkpoint, or with: "
            f"{program()} resume {run_dir}"
        )
