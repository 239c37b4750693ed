"""A worker by invite: when it will have ended."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from barnraise.assembly.joining import join
from barnraise.transport import Invite, Keys
from barnraise.worker.leaving import LEAVES_WITHIN


def test_a_process_whose_time_is_lent_knows_when_it_has_to_have_ended(tmp_path: Path) -> None:
    """The command line ends the worker by force then."""
    invite = Invite.create("127.0.0.1", 1, "run", Keys.generate().public, now=time.time(), lifetime=60.0)
    ends, said = list[float](), list[str]()
    outcome = asyncio.run(join(str(invite), said.append, home=tmp_path, hours=1e-7, on_end=ends.append))
    assert outcome.final
    assert "its owner lends the machine for 0 s, which are over" in outcome.reason
    assert ends == [pytest.approx(LEAVES_WITHIN, abs=0.01)]
