"""The table of modes and adversaries: its page, and the row that applies to a run file."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.config.load import load
from barnraise.plan import threats
from barnraise.plan.threats import ADVERSARIES, MODES, Strength, row

PAGE = Path(__file__).parents[3] / "docs/concepts/threat-model.md"
RUN = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1}},
    "data": {"kind": "text", "files": ["*.txt"], "context": 8},
}


def test_the_page_prints_the_table() -> None:
    assert threats.table() in PAGE.read_text(), "the table changed: run `make docs`"


def test_the_page_names_each_adversary_with_its_powers() -> None:
    text = PAGE.read_text()
    assert [name for name, powers in ADVERSARIES.items() if f"| {name} | {powers} |" not in text] == []


def test_a_plain_run_has_the_plain_row_in_three_lines() -> None:
    first, second, third = threats.lines(load(RUN))
    assert first.startswith("plain. curious host: nothing (it serves the rows")
    assert second.startswith("curious worker: nothing (")
    assert third.startswith("network: composition (")
    told = "; ".join((first, second, third))
    assert [name for name in ADVERSARIES if f"{name}: " not in told] == []


def test_a_row_of_several_modes_has_the_strongest_cell_of_each_adversary() -> None:
    names = (threats.SITE, threats.EXAMPLE, threats.MASKS)
    for adversary, cell in row(names).items():
        assert cell.strength == max(MODES[name].cells[adversary].strength for name in names)


@pytest.mark.parametrize("mode", [threats.NOISE, threats.EXAMPLE, threats.MASKS, threats.ENCRYPTION])
def test_no_mode_keeps_the_rows_of_a_host_from_the_host(mode: str) -> None:
    found = row((mode,))
    assert {found[name].strength for name in threats.HOSTS} == {Strength.NOTHING}
    assert found["reader"] == MODES[mode].cells["reader"]


def test_an_available_mode_is_one_that_a_run_file_can_have() -> None:
    assert threats.modes_of(load(RUN)) == (threats.PLAIN,)
    assert MODES[threats.PLAIN].available
    encrypted = RUN | {"privacy": {"homomorphic_encryption": {"key": "club/" + "0a" * 16}}}
    assert threats.modes_of(load(encrypted)) == (threats.ENCRYPTION,)
    assert MODES[threats.ENCRYPTION].available


def test_check_prints_the_row_as_data() -> None:
    found = threats.as_dict(load(RUN))
    assert found["modes"] == ["plain"]
    assert isinstance(found["adversaries"], dict)
    assert found["adversaries"]["network"]["evidence"] == "composition"
