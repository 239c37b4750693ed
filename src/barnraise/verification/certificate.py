"""The certificate of a verification: JSON for programs, and one page of Markdown for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from barnraise import __version__
from barnraise.account.markdown import markdown, table
from barnraise.ledger import chain, seal
from barnraise.verification.check import Check, CheckFinding, Unchecked
from barnraise.verification.subject import Subject

Verdict: TypeAlias = Literal["sound", "sound as far as checked", "not sound"]
"""No finding and everything checked; no finding in the checked part; at least one finding."""

MOST = 200
"""Findings of one check on the page; JSON has all."""


class CertificatePart(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    says: str
    figures: dict[str, int]
    findings: list[CheckFinding]
    unchecked: list[Unchecked]

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of this check."""
        if self.findings:
            return "not sound"
        return "sound as far as checked" if self.num_unchecked else "sound"

    @property
    def num_unchecked(self) -> int:
        """Return how many items it did not check."""
        return sum(left.count for left in self.unchecked)


class CheckedMarks(msgspec.Struct, frozen=True):
    """Marks in the run directory that a reader who noted them before can compare; "" where there is none."""

    rows: int
    head: str
    seal: str


class Certificate(msgspec.Struct, frozen=True):
    """The result of a verification: the checked parts of a run directory, and the findings.

    `sound`: the verdict is "sound", so there is no finding and everything was checked. `not_checked` counts the
    unchecked items, by the names of the checks.
    """

    run: str
    standing: str
    verdict: Verdict
    sound: bool
    not_checked: dict[str, int]
    marks: CheckedMarks
    parts: list[CertificatePart]
    seconds: float
    time: str
    barnraise: str = __version__

    @property
    def findings(self) -> list[CheckFinding]:
        """Return the findings of all parts."""
        return [finding for part in self.parts for finding in part.findings]

    @property
    def left_out(self) -> str:
        """Return the unchecked items in words: how many of each check.

        Empty when everything was checked.
        """
        return ", ".join(f"{name} {count:,}" for name, count in self.not_checked.items())

    def encode(self) -> bytes:
        """Return the certificate as JSON, for a file."""
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"

    def page(self) -> str:
        """Return the certificate as Markdown."""
        return "\n".join(_page(self)) + "\n"


def certify(subject: Subject, checks: Sequence[Check], seconds: float) -> Certificate:
    """Return the certificate of `checks`, after all of them have run."""
    parts = [
        CertificatePart(check.name, check.says, check.figures, check.findings, check.unchecked) for check in checks
    ]
    finished = subject.history.state.progress.finished
    standing = "running" if subject.running else "finished" if finished else "not finished"
    verdicts = {part.verdict for part in parts}
    order: tuple[Verdict, ...] = ("not sound", "sound as far as checked")
    verdict: Verdict = next((one for one in order if one in verdicts), "sound")
    return Certificate(
        run=subject.run.path.name,
        standing=standing,
        verdict=verdict,
        sound=verdict == "sound",
        not_checked={part.name: part.num_unchecked for part in parts if part.num_unchecked},
        marks=_marks(subject),
        parts=parts,
        seconds=round(seconds, 3),
        time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )


def _marks(subject: Subject) -> CheckedMarks:
    try:
        sealed = seal.read(subject.run)
        head = chain.newest(subject.connection)
    except Exception:  # damage is among the findings
        return CheckedMarks(0, "", "")
    return CheckedMarks(head.rows, head.digest, sealed.digest if sealed else "")


def _page(certificate: Certificate) -> Iterator[str]:
    marks, wrong = certificate.marks, len(certificate.findings)
    yield f"# Verification of {markdown(certificate.run)}"
    yield ""
    if certificate.verdict == "sound":
        yield "**Sound.** Everything was checked, and all of it is as the run left it."
    elif certificate.verdict == "sound as far as checked":
        yield "**Sound as far as checked.** Nothing was found that is not as the run left it."
    else:
        yield f"**Not sound.** {wrong:,} {'thing is' if wrong == 1 else 'things are'} not as the run left it."
    if certificate.not_checked:
        yield ""
        yield f"**Not checked**, by check: {markdown(certificate.left_out)}."
    yield ""
    yield from table(
        ("", ""),
        [
            ("run", f"{certificate.run}, {certificate.standing}"),
            ("verified", f"{certificate.time}, in {certificate.seconds:.1f} s, by barnraise {certificate.barnraise}"),
            ("ledger", f"{marks.rows:,} rows; the chain over them ends in {marks.head or '?'}"),
            ("seal", marks.seal or "not sealed"),
        ],
    )
    yield ""
    yield (
        "This check compares head and seal with the directory alone. To find out whether the whole directory was "
        "replaced, compare them with a head and a seal that you noted earlier; `barnraise status` shows them."
    )
    for part in certificate.parts:
        yield from _part(part)


def _part(part: CertificatePart) -> Iterator[str]:
    yield ""
    yield f"## {markdown(part.name)}: {part.verdict}"
    yield ""
    yield markdown(part.says)
    if part.figures:
        yield ""
        yield ", ".join(f"{markdown(name)}: {value:,}" for name, value in part.figures.items()) + "."
    if part.findings:
        yield ""
        yield from table(
            ("file", "place", "expected", "found", "what to do"),
            [(f.file, f.place, f.expected, f.found, f.remedy) for f in part.findings[:MOST]],
        )
        if len(part.findings) > MOST:
            yield f"\n{len(part.findings) - MOST:,} more are in the certificate's JSON."
    if part.unchecked:
        yield ""
        yield "Not checked:"
        yield ""
        for left in part.unchecked[:MOST]:
            number = f" ({left.count:,})" if left.count > 1 else ""
            yield f"- {markdown(left.what)}{number}: {markdown(left.why)}"
