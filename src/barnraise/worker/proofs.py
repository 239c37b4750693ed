"""The proofs that a worker's masked updates were counted: what it is told, and what it tells its owner."""

from __future__ import annotations

from barnraise.core.text import printable
from barnraise.core.units import count_text
from barnraise.wire.messages import Included
from barnraise.worker.actions import Action, CheckProof, Say
from barnraise.worker.events import ProofChecked
from barnraise.worker.tally import AnswerTally


def told(message: Included, tally: AnswerTally) -> list[Action]:
    """Have the proof checked, or tell the owner why there is none; what is not about an open update is passed over."""
    if message.assignment not in tally.masked:
        return []
    if not message.reason:
        return [CheckProof(message)]
    tally.included(message.assignment, False)
    why = printable(message.reason)
    return [Say(f"the update of task {message.assignment} was left out of version {message.version}: {why}")]


def counted(event: ProofChecked, tally: AnswerTally) -> list[Action]:
    """Count the update, and tell the owner of a false proof, and of the first one that holds."""
    if event.assignment not in tally.masked:
        return []
    first = not tally.answers.included
    tally.included(event.assignment, not event.fault)
    if event.fault:
        return [
            Say(
                f"WARNING: the controller says that version {event.version} has the update of task {event.assignment}, "
                f"but its proof is false: {printable(event.fault)}; ask the host, and the owners of the trustees"
            )
        ]
    if not first:
        return []
    return [
        Say(
            f"the update of task {event.assignment} is in version {event.version}: this machine found it in the list "
            "that a quorum of the trustees signed"
        )
    ]


def summed_up(tally: AnswerTally) -> list[Action]:
    """Tell the owner, as the worker ends, how many of its masked updates are proven to be in versions."""
    answers, waiting = tally.answers, len(tally.masked)
    if not (total := answers.included + answers.left_out + waiting):
        return []
    parts = [f"{answers.included} of {count_text(total, 'masked update')} proven to be in versions"]
    if answers.left_out:
        parts.append(f"{answers.left_out} left out, or with a false proof")
    if waiting:
        parts.append(f"{waiting} without a proof when this machine ended")
    return [Say("; ".join(parts))]
