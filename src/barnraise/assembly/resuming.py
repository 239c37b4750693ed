"""Resumption of a run that was interrupted or killed, in the mode it was started in."""

from __future__ import annotations

from barnraise.assembly.addresses import recorded_mode
from barnraise.assembly.embedded import resume_training
from barnraise.assembly.ending import Summary, is_over, sealed, summarise
from barnraise.assembly.hosting import recorded_plan
from barnraise.assembly.laboratory import resume_lab
from barnraise.assembly.serving import resume_serving
from barnraise.assembly.voice import Voice
from barnraise.ledger import RunDirectory


async def resume_run(run: RunDirectory, voice: Voice) -> Summary:
    """Resume a run whose lock is held.

    For one that is over, whose controller did not write the model and the report, write these; for one that is sealed
    nothing.
    """
    if is_over(run):
        return sealed(run) or summarise(run, recorded_plan(run), voice)
    resume = {"train": resume_training, "lab": resume_lab, "serve": resume_serving}[recorded_mode(run)]
    return await resume(run, recorded_plan(run), voice)
