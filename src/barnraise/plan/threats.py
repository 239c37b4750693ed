"""The table of modes and adversaries: what keeps a member's rows and updates from each adversary, and how strongly.

The page `docs/concepts/threat-model.md` prints it, and `check` prints the row of a run file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from barnraise.config import privacy_sections
from barnraise.config.schema import RunFile


class Strength(IntEnum):
    """The kinds of evidence that a mode protects rows and updates, the weakest first."""

    NOTHING = 0
    MEASUREMENT = 1
    COMPOSITION = 2
    PROOF = 3

    def __str__(self) -> str:
        return self.name.lower()


ADVERSARIES: Mapping[str, str] = {
    "curious host": "follows the protocol and reads all that the controller receives, and the run's folder",
    "malicious host": "sends any message as the controller, and holds what a standby holds: the run's secret keys",
    "curious worker": "follows the protocol and keeps all that it receives",
    "colluding workers": "all members but one, who share what they know, also with the host",
    "colluding trustees": "trustees who share their seeds with the host",
    "network": "reads, changes, delays and drops packets",
    "reader": "has the exported model and the report of a finished run, and not its folder",
}
"""The adversaries by name, with what each one does."""

HOSTS = ("curious host", "malicious host")


@dataclass(frozen=True)
class Cell:
    """The protection against one adversary: its strength, and the reason or what it rests on."""

    strength: Strength
    why: str


@dataclass(frozen=True)
class Mode:
    """A mode of a run: its name, what it does, whether this version has it, and a cell for each adversary."""

    name: str
    summary: str
    available: bool
    cells: Mapping[str, Cell]


def _nothing(why: str) -> Cell:
    return Cell(Strength.NOTHING, why)


def _measured(why: str) -> Cell:
    return Cell(Strength.MEASUREMENT, why)


def _composed(why: str) -> Cell:
    return Cell(Strength.COMPOSITION, why)


def _proven(why: str) -> Cell:
    return Cell(Strength.PROOF, why)


def _row(cells: list[Cell]) -> Mapping[str, Cell]:
    return dict(zip(ADVERSARIES, cells, strict=True))


_SEALED = _composed("CURVE or Noise IK seals all messages; sizes, times and the number of workers stay visible")
_OWN_LIMIT = _composed(
    "a site that joins with --epsilon checks the noise and counts its rows itself; others trust the host"
)
_HOST_TELLS = _nothing("the host tells the clip, the noise and how many share it, and no site checks them by a budget")
_NO_TRUSTEES = _nothing("the mode has no trustees, so they hold no secret")
_MODEL_KNOWS = _measured("the model remembers rows: LiRA finds members of the training set")

PLAIN, SITE, NOISE, EXAMPLE, SITE_LEVEL, SHARED, MASKS, ENCRYPTION = (
    "plain",
    "site data",
    "noise only",
    "example-level privacy",
    "site-level privacy",
    "site-level privacy by shared noise",
    "secure aggregation",
    "homomorphic encryption",
)

_ROWS = (
    Mode(
        PLAIN,
        "the host has the data, and workers fetch shards and send updates",
        True,
        _row(
            [
                _nothing("it serves the rows, and reads each update with its node's name"),
                _nothing("it serves the rows; inconsistent models for single workers are not noticed"),
                _nothing("it fetches whole shards of rows, and all versions"),
                _nothing("they fetch the shards, and subtract their own updates from versions"),
                _NO_TRUSTEES,
                _SEALED,
                _MODEL_KNOWS,
            ]
        ),
    ),
    Mode(
        SITE,
        "each worker trains on its own files, and sends updates",
        True,
        _row(
            [
                _measured("no row leaves its site, but an update shows its set of tokens"),
                _measured("as the curious host; it also chooses the model on which an update is computed"),
                _measured("it sees versions, each a sum of its members' updates"),
                _measured("all members but one subtract their updates from a version: the last one's remains"),
                _NO_TRUSTEES,
                _SEALED,
                _MODEL_KNOWS,
            ]
        ),
    ),
    Mode(
        NOISE,
        "workers clip their updates and add noise, and no epsilon is claimed",
        True,
        _row(
            [
                _measured("the success of attacks on noised updates; many updates of one site average noise away"),
                _measured("as the curious host; it also chooses the model on which an update is computed"),
                _measured("versions hold the noise of all their members"),
                _measured("the noise of the last member's update remains"),
                _NO_TRUSTEES,
                _SEALED,
                _measured("the success of LiRA on a model of noised updates"),
            ]
        ),
    ),
    Mode(
        EXAMPLE,
        "workers clip the gradient of each example and add noise (DP-SGD); the unit is an example",
        True,
        _row(
            [
                _proven("epsilon and delta for one example in all updates of its site, by the PLD accountant"),
                _OWN_LIMIT,
                _proven("the same: versions follow from updates"),
                _proven("the same: the noise is the site's own"),
                _NO_TRUSTEES,
                _SEALED,
                _proven("the same: the model follows from updates"),
            ]
        ),
    ),
    Mode(
        SITE_LEVEL,
        "each site clips its updates and adds noise to each; the unit is all rows of a site",
        True,
        _row(
            [
                _proven("epsilon and delta for all rows of one site: it adds the whole noise to each of its updates"),
                _OWN_LIMIT,
                _proven("the same: versions follow from noised updates"),
                _proven("the same: the noise is the site's own"),
                _NO_TRUSTEES,
                _SEALED,
                _proven("the same: the model follows from noised updates"),
            ]
        ),
    ),
    Mode(
        SHARED,
        "each site clips its updates and adds a share of the noise under masks; the unit is all rows of a site",
        True,
        _row(
            [
                _composed(
                    "epsilon and delta for the rows of a site, while `honest` members of each sum are not the host's"
                ),
                _HOST_TELLS,
                _composed("the same: versions follow from such sums"),
                _composed("the same, while `honest` members of each sum do not tell their noise"),
                _composed("t of them miss a seed of each update; t + 1 with the host see it with a share of noise"),
                _SEALED,
                _composed("the same: the model follows from such sums"),
            ]
        ),
    ),
    Mode(
        MASKS,
        "workers mask updates with seeds that trustees hold in parts, and the controller reads sums of groups",
        True,
        _row(
            [
                _composed("one-shot masks hide single updates; an unnoised sum shows the union of tokens"),
                _composed(
                    "while at most t of m trustees collude, workers pin them, and they pin members (`join --members`)"
                ),
                _measured("it sees versions, each a sum of its members' updates"),
                _nothing("all members of a group but one subtract their updates from its sum"),
                _composed("t of them miss a seed of each update; t + 1 with the host remove the masks"),
                _SEALED,
                _MODEL_KNOWS,
            ]
        ),
    ),
    Mode(
        ENCRYPTION,
        "workers encrypt all that they send (CKKS), and the controller adds it without a key",
        True,
        _row(
            [
                _composed("CKKS hides updates and the trained model; sizes, times and staleness stay visible"),
                _nothing("one worker that gives it the secret key opens all ciphertexts"),
                _measured("it decrypts sums, and sees versions"),
                _nothing("all members but one decrypt a version and subtract their updates: the last one's remains"),
                _NO_TRUSTEES,
                _SEALED,
                _measured("a run directory holds ciphertexts; the exported model remembers rows: LiRA finds members"),
            ]
        ),
    ),
)

MODES: Mapping[str, Mode] = {mode.name: mode for mode in _ROWS}
"""All modes by name, plain first."""

_BY_PROFILE = {privacy_sections.NOISE: NOISE, privacy_sections.EXAMPLE: EXAMPLE, privacy_sections.SITE: SITE_LEVEL}
"""The mode of each profile of differential privacy."""

_OWN_ROWS = _nothing("the rows are the host's own, and workers fetch them")


def modes_of(run_file: RunFile) -> tuple[str, ...]:
    """Return the names of a run file's modes, plain where it has no other."""
    kind: str = run_file.data.kind
    section = run_file.privacy.differential_privacy
    noised = (SHARED if section.honest else _BY_PROFILE[section.profile],) if section is not None else ()
    masked = (MASKS,) if run_file.privacy.secure_aggregation is not None else ()
    encrypted = (ENCRYPTION,) if run_file.privacy.homomorphic_encryption is not None else ()
    protected = (*noised, *masked, *encrypted)
    return (SITE, *protected) if kind == "site" else protected or (PLAIN,)


def row(names: Iterable[str]) -> dict[str, Cell]:
    """Return a cell for each adversary: the strongest of the named modes' cells.

    Where rows are the host's own, no mode keeps them from the host and from workers that fetch them.
    """
    chosen = [MODES[name] for name in names]
    found: dict[str, Cell] = {
        adversary: max((mode.cells[adversary] for mode in chosen), key=lambda cell: cell.strength)
        for adversary in ADVERSARIES
    }
    if PLAIN not in names and SITE not in names:
        exposed = (*HOSTS, "curious worker", "colluding workers")
        found |= dict.fromkeys(exposed, _OWN_ROWS)
    return found


def lines(run_file: RunFile) -> tuple[str, str, str]:
    """Return the row of a run file in three lines, as `check` prints it."""
    names = modes_of(run_file)
    cells = row(names)
    groups = (HOSTS, ("curious worker", "colluding workers", "colluding trustees"), ("network", "reader"))
    told = ["; ".join(f"{name}: {cells[name].strength} ({cells[name].why})" for name in one) for one in groups]
    return f"{' with '.join(names)}. {told[0]}", told[1], told[2]


def as_dict(run_file: RunFile) -> dict[str, object]:
    """Return the modes of a run file, and its row as plain data, as `check --json` prints it."""
    names = modes_of(run_file)
    cells = {name: {"evidence": str(cell.strength), "why": cell.why} for name, cell in row(names).items()}
    return {"modes": list(names), "adversaries": cells}


def table() -> str:
    """Return the table of modes and adversaries as Markdown: the evidence of each cell, then the reasons by mode."""
    head = f"| mode | {' | '.join(ADVERSARIES)} |\n| --- |{' --- |' * len(ADVERSARIES)}\n"
    rows = (f"| {mode.name} | {' | '.join(str(mode.cells[one].strength) for one in ADVERSARIES)} |" for mode in _ROWS)
    return "\n".join([head + "\n".join(rows) + "\n", *map(_section, _ROWS)])


def _section(mode: Mode) -> str:
    """Return a mode's heading, summary and reasons as Markdown."""
    state = "Available." if mode.available else "Not in this version; the rows say what it is built to give."
    summary = f"{mode.summary[0].upper()}{mode.summary[1:]}. {state}"
    rows = "\n".join(f"| {name} | {cell.strength} | {cell.why} |" for name, cell in mode.cells.items())
    head = "| adversary | evidence | reason, or what it rests on |\n| --- | --- | --- |\n"
    return f"### Mode: {mode.name}\n\n{summary}\n\n{head}{rows}\n"
