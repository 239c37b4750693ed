"""A budget of differential privacy over a fail-over: the count is equal, and the stop still holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.core.errors import RunDirectoryError
from barnraise.core.types import Train, name_of
from barnraise.ledger import LedgerView, notes
from barnraise.ledger.decisions import Assigned, Decision, Noted
from barnraise.privacy.accounting import epsilon
from barnraise.privacy.spending import ROW, Spending

BUDGET, DELTA, USES, STEPS = 8.0, 1e-5, 6, 2


def decisions(run: Path) -> list[Decision]:
    try:
        with LedgerView(run / "ledger.sqlite") as view:
            return [decision for _, decision in view.replay()]
    except RunDirectoryError:  # it is not there yet, or has no tables yet
        return []


def told(run: Path) -> list[notes.PrivacySpent]:
    return [d.note for d in decisions(run) if isinstance(d, Noted) and isinstance(d.note, notes.PrivacySpent)]


def assigned(run: Path) -> dict[int, Assigned]:
    return {d.assignment: d for d in decisions(run) if isinstance(d, Assigned) and d.kind == name_of(Train)}


def counted(given: dict[int, Assigned]) -> int:
    """The most steps of a row, counted by hand."""
    spending = Spending(ROW)
    for one in given.values():
        spending.assigned(one.node, one.rows, one.local_steps)
    return spending.most


@pytest.mark.campaign
@pytest.mark.slow
def test_a_standby_keeps_the_count_and_ends_the_run_at_the_budget(barnraise, run_file, tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_text("".join(f"{a} and {a} are {2 * a}.\n" for a in range(300)))
    path = run_file(
        workers=[],
        data={"kind": "text", "files": [str(text)], "context": 32},
        training={"tokens": 10**9, "batch_size": 4, "local_steps": STEPS},
        trust={"loss_gate": 0},
        differential_privacy={"epsilon": BUDGET, "delta": DELTA, "uses": USES},
        controller={"evaluations": 1, "evaluation_rows": 16, "durability": "standby", "standby_lease": 2.0}
        | {"standby_patience": 2.0},
    )
    serve = barnraise("serve", str(path))
    serve.wait_for(lambda text: "barnraise join" in text)
    run = next((tmp_path / "runs").iterdir())
    home, keys = str(tmp_path / "home"), run / "keys" / "invite"
    joins = [barnraise("join", f"@{keys}", "--name", name, "--threads", "1", "--home", home) for name in ("a", "b")]
    invite = barnraise("invite", str(run), "--standby")
    assert invite.wait() == 0
    ticket = tmp_path / "ticket"
    ticket.write_text(invite.out.read_text())
    standby = barnraise("standby", f"@{ticket}", "--dir", str(tmp_path / "copies"))
    copy = tmp_path / "copies" / run.name
    standby.wait_for(lambda text: "can take over" in text)
    standby.wait_for(lambda text: len(told(run)) >= 2)
    serve.kill()
    before, answered = assigned(run), {d.assignment for d in decisions(run) if hasattr(d, "verdict")}
    spent = told(run)[-1].steps

    assert standby.wait() == 0, standby.text()
    after = assigned(copy)
    assert answered & before.keys() <= after.keys(), "no work was done for which the standby does not account"
    shared = before.keys() & after.keys()
    assert counted({one: before[one] for one in shared}) == counted({one: after[one] for one in shared})
    assert counted(after) > spent, "the standby assigned work of its own"

    steps = [note.steps for note in told(copy)]
    assert steps == sorted(set(steps)), "the count never goes back"
    assert steps[-1] == counted(after) == USES * STEPS
    budget = next(d.note for d in decisions(copy) if isinstance(d, Noted) and isinstance(d.note, notes.PrivacyBudget))
    assert told(copy)[-1].epsilon == epsilon(budget.noise, budget.rate, steps[-1], DELTA) <= BUDGET
    reasons = [d.note.reason for d in decisions(copy) if isinstance(d, Noted) and isinstance(d.note, notes.Stopping)]
    assert ["no room for the next task" in reason for reason in reasons] == [True]
    status = barnraise("status", str(copy), "--json")
    assert status.wait() == 0, status.text()
    shown = status.json()["privacy"]
    assert (shown["steps"], shown["spent"]) == (steps[-1], told(copy)[-1].epsilon)
    assert [join.wait(60) for join in joins] == [0, 0]
