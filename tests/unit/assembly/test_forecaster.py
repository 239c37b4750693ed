"""The forecast that is kept up to date for a page: made by a process of its own, now and then."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from barnraise.assembly.forecaster import COST, Forecaster, KeptForecast, made
from barnraise.assembly.forecasting import brief
from barnraise.ledger import RunDirectory

from ...simulated_runs import beginning, directory, played


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return directory(tmp_path_factory.mktemp("runs"), beginning(played(), 0.4))


def awaited(forecaster: Forecaster, before: KeptForecast | None = None) -> KeptForecast:
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        found = forecaster.latest()
        if found is not None and found is not before:
            return found
        time.sleep(0.02)
    raise AssertionError("there was no forecast within a minute")


def test_a_process_makes_the_forecast_and_tells_its_cost(run: RunDirectory) -> None:
    forecaster, expected = Forecaster(run), brief(run)
    try:
        assert forecaster.latest() is None
        found = awaited(forecaster)
        assert (found.problem, found.at, found.tokens) == ("", expected.at, expected.tokens)
        assert found.low is not None
        assert found.high is not None
        assert found.low < expected.at < found.high
        assert found.cost > 0.05  # an interpreter with numpy takes longer
    finally:
        forecaster.close()


def test_the_next_forecast_waits_for_what_the_last_one_cost(run: RunDirectory) -> None:
    forecaster = Forecaster(run, every=0.01)
    try:
        first = awaited(forecaster)
        assert first.cost / COST > 10.0
        time.sleep(1.0)
        assert forecaster.latest() is first
    finally:
        forecaster.close()


def test_a_run_without_a_forecast_has_the_reason(tmp_path: Path) -> None:
    found = made(directory(tmp_path, []).path)
    assert "only 0 contributions" in found.problem
    assert found.at is None
    assert "there is no run directory" in made(tmp_path / "none").problem


def test_a_folder_that_is_gone_stops_no_page(tmp_path: Path) -> None:
    forecaster = Forecaster(RunDirectory(tmp_path / "none"))
    try:
        assert "there is no run directory" in awaited(forecaster).problem
    finally:
        forecaster.close()


def test_a_closed_forecaster_starts_nothing(run: RunDirectory) -> None:
    forecaster = Forecaster(run)
    forecaster.close()
    assert forecaster.latest() is None
    time.sleep(0.2)
    assert forecaster.latest() is None
