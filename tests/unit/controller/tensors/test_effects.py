"""Each effect of the controller has a thread, an implementation, and a simulation."""

from __future__ import annotations

import pytest

from barnraise.controller.shell import server
from barnraise.controller.state.effects import THREADS, Checkpoint, ControllerEffect, Inspect
from barnraise.controller.tensors import effects as real
from barnraise.emulation import effects as simulated
from barnraise.emulation import simulator

ALL = ControllerEffect.__subclasses__()
BESIDES_TENSORS = {Inspect, Checkpoint}
"""Effects that need an upload, or files."""


@pytest.mark.parametrize("effect", ALL, ids=lambda effect: effect.__name__)
def test_an_effect_names_a_thread_of_the_shell(effect: type[ControllerEffect]) -> None:
    assert effect.thread in THREADS
    assert effect.__struct_fields__[0] == "epoch"


@pytest.mark.parametrize("effect", ALL, ids=lambda effect: effect.__name__)
def test_an_effect_is_carried_out_by_the_shell_and_in_a_simulation(effect: type[ControllerEffect]) -> None:
    needs_more = effect in BESIDES_TENSORS
    assert (effect in real.EFFECTS) != needs_more
    assert (effect in server._ACTIONS) == needs_more, "the executor carries out the others"
    assert (effect in simulated.EFFECTS) != needs_more
    assert effect in simulator._ACTIONS
