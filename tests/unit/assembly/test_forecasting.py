"""The forecast of a run from its own throughput: the end of simulated runs, and runs of which nothing can be said."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.account.calibration import of_decisions
from barnraise.assembly.forecasting import brief, forecast
from barnraise.core.errors import InputError
from barnraise.ledger import Decision

from ...simulated_runs import TOKENS, beginning, directory, end_of, played


@pytest.fixture(scope="module")
def simulated() -> list[Decision]:
    return played()


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_a_forecast_comes_true_within_a_tenth(simulated: list[Decision], share: float) -> None:
    rows, end = beginning(simulated, share), end_of(simulated)
    found = forecast(of_decisions(rows), TOKENS, rows[-1].time)
    assert found.at == pytest.approx(end, rel=0.1)
    assert found.low < found.at < found.high
    assert found.low <= end <= found.high
    assert found.tokens / TOKENS == pytest.approx(share, abs=0.02)
    assert found.present == 4


def test_the_interval_shrinks_towards_the_end(simulated: list[Decision]) -> None:
    widths = []
    for share in (0.1, 0.5, 0.9):
        rows = beginning(simulated, share)
        found = forecast(of_decisions(rows), TOKENS, rows[-1].time)
        widths.append(found.high - found.low)
    assert widths == sorted(widths, reverse=True)


def test_a_run_directory_is_forecast_alike(simulated: list[Decision], tmp_path: Path) -> None:
    rows = beginning(simulated, 0.4)
    found = brief(directory(tmp_path, rows))
    assert found == forecast(of_decisions(rows), TOKENS, rows[-1].time)


def test_a_finished_run_has_no_forecast(simulated: list[Decision]) -> None:
    with pytest.raises(InputError, match=r"it ended after .* since the token budget is met"):
        forecast(of_decisions(simulated), TOKENS, 1e6)


def test_a_run_that_has_just_begun_has_no_forecast(simulated: list[Decision]) -> None:
    for share, told in ((0.0, "1 contribution"), (0.001, "1 contribution")):
        rows = beginning(simulated, share)
        with pytest.raises(InputError, match=f"only {told}"):
            forecast(of_decisions(rows), TOKENS, rows[-1].time)
    with pytest.raises(InputError, match="only 0 contributions"):
        forecast(of_decisions([]), TOKENS, 0.0)


def test_a_run_whose_budget_is_met_ends_at_once(simulated: list[Decision]) -> None:
    rows = beginning(simulated, 1.0)
    found = forecast(of_decisions(rows), TOKENS, rows[-1].time)
    assert found.left < 5.0
    assert found.low == found.at == found.high


def test_values_for_programs_are_seconds_from_now(simulated: list[Decision]) -> None:
    rows = beginning(simulated, 0.5)
    found = forecast(of_decisions(rows), TOKENS, rows[-1].time)
    told = found.as_json()
    assert told["at"] - told["now"] == pytest.approx(told["seconds"], abs=0.01)
    assert told["low_seconds"] < told["seconds"] < told["high_seconds"]
    assert told["simulated"] is None
