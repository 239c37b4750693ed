"""A box to try a run's model: its newest checkpoint, kept for some minutes, one text at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from barnraise.account.account import manifest
from barnraise.core.errors import BarnraiseError, InputError
from barnraise.ledger import RunDirectory

KEPT = 300.0
"""Seconds for which an opened model is used: then the newest one is opened."""

LONGEST, TOKENS = 4000, 120
"""Characters of a text that is tried, and tokens that a model writes after one."""


class Trials:
    """Answers texts with the model of a run, in the thread that asks."""

    def __init__(self, run: RunDirectory) -> None:
        self._run, self._lock = run, threading.Lock()
        self._stack, self._since = ExitStack(), 0.0
        self._answer: Callable[[str], str] | None = None
        self._turn = 0
        self._timer: threading.Timer | None = None

    @property
    def there(self) -> bool:
        """Return whether the run has a model here, so that a text can be tried."""
        try:
            return manifest(self._run).trained > 0
        except (BarnraiseError, ValueError):
            return False

    def answer(self, text: str) -> str:
        """Return the model's answer: a solved formula with its trace and verdicts, or a text continued.

        Raises InputError, also while another text is tried.
        """
        if len(text) > LONGEST:
            raise InputError(f"the text has {len(text):,} characters: at most {LONGEST:,} are tried")
        if not self._lock.acquire(blocking=False):
            raise InputError("another text is being tried: wait for it")
        try:
            self._turn += 1
            return self._opened()(text)
        finally:
            self._lock.release()
            self._forget_later()

    def _forget_later(self) -> None:
        """Remove the model once no text was tried for some minutes."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(KEPT, self.close)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Remove the opened model; one that is writing now goes with the process."""
        if self._lock.acquire(timeout=1.0):
            try:
                self._answer = None
                self._stack.close()
            finally:
                self._lock.release()

    def _opened(self) -> Callable[[str], str]:
        if self._answer is None or time.monotonic() - self._since > KEPT:
            from barnraise.assembly.trying import FormulaTrial, opened

            self._stack.close()
            self._answer = None
            trial: Any = self._stack.enter_context(opened(self._run))
            self._answer = self._solve(trial) if isinstance(trial, FormulaTrial) else self._continue(trial)
            self._since = time.monotonic()
        return self._answer

    def _solve(self, trial: Any) -> Callable[[str], str]:
        from barnraise.data.sat.formula_text import parse

        verdicts = {True: "satisfiable", False: "unsatisfiable", None: "no verdict"}

        def solve(text: str) -> str:
            solved = trial.solve(parse(text, "<text>") if text.strip() else trial.held_out(self._turn))
            told = [solved.shown, f"model: {verdicts[solved.claims]}"]
            return "\n".join([*told, f"{solved.ruling.solver}: {verdicts[solved.ruling.satisfiable]}"])

        return solve

    def _continue(self, trial: Any) -> Callable[[str], str]:
        return lambda text: text + trial.complete(text, tokens=TOKENS, temperature=0.8, seed=self._turn)
