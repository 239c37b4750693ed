"""A snapshot of a worker's progress for the machine's owner: its activity, results and waiting times."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from barnraise.core.text import printable
from barnraise.core.types import Audit, Confirm, Endorse, Evaluate, Flush, Masked, Train, Unmask, Vet
from barnraise.core.units import bytes_text, count_text, duration_text
from barnraise.worker.machine import Worker
from barnraise.worker.tally import Answers

DOING = {
    Train: "training",
    Masked: "training",
    Vet: "checking updates before they are listed",
    Endorse: "checking a list",
    Confirm: "summing masks",
    Unmask: "summing masks",
    Evaluate: "measuring the loss",
    Audit: "doing another node's work again to check it",
    Flush: "sending the residual of compression",
}
"""A phrase for a worker's activity, by kind of task."""


@dataclass(frozen=True)
class Progress:
    """A worker's progress at one moment.

    `doing` is a phrase. `seconds`, `answers` and bytes are since the process began. `tokens_per_second` is that of the
    last task. `silent` are seconds without a message of the controller, 0 while it keeps to its heartbeat. `epoch` is
    that of the controller, 0 before it is known: it rises when the controller restarts, or a standby takes over. `left`
    are seconds for which the machine is still lent, inf without an end.
    """

    doing: str
    seconds: float
    answers: Answers
    tokens_per_second: float
    bytes_up: int
    bytes_down: int
    silent: float
    epoch: int
    left: float

    def as_json(self) -> dict[str, Any]:
        """Return the same by name, for programs; times in whole seconds, no `left` without an end."""
        told = asdict(self)
        told |= told.pop("answers") | {"seconds": round(self.seconds), "silent": round(self.silent)}
        return told | {"left": None if self.left == math.inf else round(self.left)}


def progress(worker: Worker, *, began: float, now: float, step: int, bytes_up: int, bytes_down: int) -> Progress:
    """Return the progress of `worker` at `now`, whose process began at `began`; `step` is the running task's."""
    contact = worker.contact
    heard = now - contact.last_heard
    silent = heard if contact.welcome is not None and heard > contact.lease else 0.0
    return Progress(
        doing=_doing(worker, step, silent),
        seconds=now - began,
        answers=worker.tasks.tally.answers,
        tokens_per_second=worker.tasks.lead.tokens_per_second,
        bytes_up=bytes_up,
        bytes_down=bytes_down,
        silent=silent,
        epoch=contact.term.epoch,
        left=max(0.0, worker.ends - now),
    )


def _doing(worker: Worker, step: int, silent: float) -> str:
    tasks, outgoing = worker.tasks, worker.outgoing
    if worker.leaving:
        return "submitting its finished work, then leaving"
    if worker.contact.welcome is None:
        return "waiting for the controller's welcome"
    if not worker.ready:
        return "fetching the run's files and building the model"
    if tasks.running is not None:
        task = tasks.running.task
        at = f", step {min(step, task.steps)} of {task.steps}" if task.steps else ""
        return f"{DOING[type(task)]} (task {task.id}{at})"
    if silent:
        return f"waiting for the controller, silent for {duration_text(silent)}"
    if outgoing.uploading:
        return "sending a contribution"
    if tasks.waiting is not None:
        return f"fetching the data of task {tasks.waiting.id}"
    if outgoing.pending:
        return f"waiting for the answer to {count_text(len(outgoing.pending), 'result')}"
    return "waiting for a task"


def notices(before: Progress | None, now: Progress) -> Iterator[str]:
    """Yield the events between two moments for the owner.

    The controller was lost, is back, or is another; and the reason of a refusal.
    """
    silent = before.silent if before is not None else 0.0
    if now.silent and not silent:
        yield f"nothing heard from the controller for {duration_text(now.silent)}: this machine keeps trying"
    if silent and not now.silent:
        yield f"the controller answers again, after {duration_text(silent)}"
    if before is None:
        return
    if before.epoch and now.epoch > before.epoch:
        yield "the run's controller was started again, or a standby took over; this machine continues"
    if now.answers.refused > before.answers.refused and now.answers.reason != before.answers.reason:
        yield f"a contribution was refused: {printable(now.answers.reason)}"


def line(now: Progress) -> str:
    """Return the progress on one line.

    >>> answers = Answers(accepted=3, tokens=12_000, steps=12)
    >>> line(Progress("training (task 9, step 2 of 4)", 60.0, answers, 450.0, 2000, 90_000, 0.0, 1, 3600.0))
    '3 contributions, 12,000 tokens, 450 tokens/s, up 2.0 kB, down 90.0 kB; training (task 9, step 2 of 4); 1 h left'
    """
    left = [f"{duration_text(now.left)} left"] if now.left < math.inf else []
    pace = f"{now.tokens_per_second:,.0f} tokens/s"
    figures = [*_done(now.answers), pace, f"up {bytes_text(now.bytes_up)}, down {bytes_text(now.bytes_down)}"]
    return "; ".join([", ".join(figures), now.doing, *left])


def summary(now: Progress) -> str:
    """Return a summary of the machine's work for the run."""
    done = ", ".join([*_done(now.answers), count_text(now.answers.steps, "step")])
    sent = f"{bytes_text(now.bytes_up)} sent, {bytes_text(now.bytes_down)} received"
    return f"this machine did {done}; {sent}, in {duration_text(now.seconds)}"


def _done(answers: Answers) -> Iterator[str]:
    refused = f" ({answers.refused:,} refused)" if answers.refused else ""
    yield f"{count_text(answers.accepted, 'contribution')}{refused}"
    yield count_text(answers.tokens, "token")
    if answers.included or answers.left_out:
        out = f", {answers.left_out:,} left out" if answers.left_out else ""
        yield f"{answers.included:,} proven to be in versions{out}"
    if answers.others:
        yield count_text(answers.others, "other result")
