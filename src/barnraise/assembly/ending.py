"""The end of a run: the model exported, its skill measured, the report written; or how to resume.

An interrupted run is left open.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnraise.account.account import Account, read
from barnraise.assembly import solving
from barnraise.assembly.exporting import export_model
from barnraise.controller.state.actions import Finish
from barnraise.core.program import program
from barnraise.ledger import LedgerView, RunDirectory, notes, seal
from barnraise.plan.resolve import Plan

if TYPE_CHECKING:
    from barnraise.assembly.hosting import Host
    from barnraise.assembly.voice import Voice
    from barnraise.data.sat.scores import SatScores


@dataclass(frozen=True)
class Summary:
    """The summary of a run: its `account` has every figure, `scores` those of a model trained on satisfiability.

    An `interrupted` run can be resumed (`barnraise resume`, `finish`), and has no model yet. `broken` is the failure
    around a run that reached its end.
    """

    account: Account
    scores: SatScores | None = None
    interrupted: bool = False
    broken: str = ""

    @property
    def run_dir(self) -> Path:
        return self.account.run.path

    @property
    def model_dir(self) -> Path | None:
        """Return the folder of the model in Hugging Face format; None where there is none."""
        model = self.account.run.model
        return model if model.is_dir() and not self.interrupted else None

    @property
    def report(self) -> Path | None:
        """Return the file of the report, in Markdown."""
        return None if self.interrupted else self.account.run.report

    @property
    def first_loss(self) -> float | None:
        """Return the first held-out loss, in nats a token; None when it was never measured."""
        return self.account.first_loss

    @property
    def final_loss(self) -> float | None:
        return self.account.final_loss


def is_over(run: RunDirectory) -> bool:
    """Return whether the run has finished, by its ledger.

    Raises StorageError.
    """
    with LedgerView(run.ledger) as view:
        return bool(view.events(notes.Finished))


def sealed(run: RunDirectory) -> Summary | None:
    """Return the summary of a run that is over and sealed; None for any other.

    The run directory is not changed. Raises RunDirectoryError, StorageError.
    """
    return Summary(read(run)) if run.seal.is_file() and is_over(run) else None


def conclude(host: Host, finish: Finish, voice: Voice) -> Summary:
    """Return the summary of a run that has ended; for an interrupted one report how to resume it."""
    if unprotected := host.server.standbys.durability.unprotected:
        voice.warn(
            f"controller.durability is standby, but {unprotected:,} contributions were acknowledged while no standby "
            f"followed (controller.standby_patience): only {host.run.path} has them, unless a standby came later"
        )
    if finish.interrupted:
        state, path = host.machine.state, host.run.path
        share = state.totals.tokens / host.machine.settings.tokens
        voice.say(
            f"interrupted at version {state.newest.version}, with {share:.1%} of the tokens; nothing accepted is lost"
        )
        voice.say(f"end it with what it has learnt: {program()} finish {path}")
        voice.say(f"train on: {program()} resume {path}")
        return Summary(read(host.run), interrupted=True)
    return summarise(host.run, host.plan, voice)


def summarise(run: RunDirectory, plan: Plan, voice: Voice) -> Summary:
    """Export the model of a run that is over, measure its skill, write the report, seal the folder."""
    from barnraise.account.page.report_page import write_page
    from barnraise.account.report import write_report

    shutil.rmtree(run.moments, ignore_errors=True)  # no process continues from there
    if plan.encryption is not None:
        voice.say(f"the model is encrypted; a member with the key writes it: {program()} export {run.path} --key FILE")
    else:
        with voice.doing("writing the model"):
            export_model(run, warn=voice.warn)
    scores = None
    if plan.encryption is None and plan.run_file.data.kind == "sat":
        voice.say("letting the model solve held-out formulas")
        with voice.doing("letting the model solve held-out formulas"):
            scores = solving.solve_held_out(run, plan.run_file)
    with voice.doing("writing the report"):
        account = read(run)
        write_report(account, scores)
        write_page(run, plan.run_file.training.tokens)
        seal.put(run)
    return Summary(account, scores)
