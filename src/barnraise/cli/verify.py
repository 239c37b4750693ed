"""`barnraise verify RUN_DIR`: whether a run directory is as its run left it.

Changes nothing in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console

if TYPE_CHECKING:
    from barnraise.ledger import RunDirectory
    from barnraise.verification import Certificate

_SHOWN = 20

EXIT_CODES = {"sound": 0, "not sound": 1, "sound as far as checked": 3}
"""By the certificate's verdict; 2 is for a folder that cannot be verified at all."""

_WORDS = {"sound": "sound", "not sound": "WRONG", "sound as far as checked": "sound*"}


def verify(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    versions: Annotated[int | None, typer.Option(min=0, help="Make at most this many versions again.")] = None,
    work: Annotated[int, typer.Option(min=0, help="Repeat this many contributions of stateless tasks.")] = 20,
    to: Annotated[Path | None, typer.Option(help="A folder for certificate.json and certificate.md.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the certificate as one line of JSON.")] = False,
) -> None:
    """Check that a run directory is what its run left: ledger, payloads, checkpoints, versions, model, all files.

    For stateless tasks, a sample of the contributions is repeated too. Needs nothing but the folder, works while the
    run does, and changes nothing in it. Exit code 0: everything was checked, and is sound. 3: what was checked is
    sound, and the last line says how much was not checked. 1: something is wrong; each finding names the file and the
    place.
    """
    from barnraise.ledger import RunDirectory

    run = RunDirectory.open(run_dir).require_real("verify")
    folder = _outside(run, to) if to is not None else None
    from barnraise.verification import standard
    from barnraise.verification import verify as examine

    certificate = examine(run, standard(versions, work))
    if folder is not None:
        _write(folder, certificate)
    if json:
        import msgspec

        console.emit_json(msgspec.to_builtins(certificate))
    else:
        show(certificate, folder)
    if code := EXIT_CODES[certificate.verdict]:
        raise typer.Exit(code)


def _outside(run: RunDirectory, to: Path) -> Path:
    """Return `to`, which must not be within the verified folder."""
    from barnraise.core.errors import InputError

    folder = to.absolute()
    if folder.resolve().is_relative_to(run.path.resolve()):
        raise InputError(f"{to} is within the run directory, which is not to change: give another folder with --to")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{to} is a file: give a folder with --to")
    return folder


def _write(folder: Path, certificate: Certificate) -> None:
    from barnraise.core.files import write_file
    from barnraise.ledger.disk import storage_errors

    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / "certificate.json", certificate.encode())
        write_file(folder / "certificate.md", certificate.page().encode())


def show(certificate: Certificate, folder: Path | None) -> None:
    """Print the certificate; `folder` is where its files were written."""
    from barnraise.core.text import printable

    marks = certificate.marks
    console.say(f"{printable(certificate.run)}  {certificate.standing}")
    console.say()
    for part in certificate.parts:
        figures = ", ".join(f"{name} {value:,}" for name, value in part.figures.items())
        console.say(f"  {part.name:<12}{_WORDS[part.verdict]:<7}{figures}".rstrip())
    if certificate.not_checked:
        console.say("  * as far as checked")
    console.say()
    for part in certificate.parts:
        for finding in part.findings[:_SHOWN]:
            place = f", {printable(finding.place)}" if finding.place else ""
            console.say(f"  wrong: {printable(finding.file) or part.name}{place}")
            console.say(f"    expected {printable(finding.expected, 300)}")
            console.say(f"    found {printable(finding.found, 300)}")
            console.say(f"    {printable(finding.remedy, 300)}")
        if len(part.findings) > _SHOWN:
            console.say(f"  {len(part.findings) - _SHOWN:,} more of '{part.name}' (--json has all)")
    for part in certificate.parts:
        for left in part.unchecked[:_SHOWN]:
            number = f" ({left.count:,})" if left.count > 1 else ""
            console.say(f"  not checked: {printable(left.what, 300)}{number}: {printable(left.why, 300)}")
    console.say()
    console.say(f"  ledger      {marks.rows:,} rows, head {marks.head or '?'}")
    console.say(f"  seal        {marks.seal or 'not sealed'}")
    if folder is not None:
        console.say(f"  certificate {folder / 'certificate.md'}")
    console.say()
    wrong = len(certificate.findings)
    told = f"{wrong:,} {'thing is' if wrong == 1 else 'things are'} wrong" if wrong else certificate.verdict
    left_out = f"; not checked: {certificate.left_out}" if certificate.not_checked else ""
    console.say(f"{told}{left_out} ({certificate.seconds:.1f} s)")
