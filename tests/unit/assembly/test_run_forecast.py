"""The forecast of a run that the simulator plays on, and of the same run with changes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from barnraise.account.calibration import of_decisions
from barnraise.assembly import run_forecast
from barnraise.assembly.forecasting import forecast as run_forecast_alone
from barnraise.assembly.run_forecast import RunForecast
from barnraise.assembly.what_if import WhatIf, density_change, steps_change
from barnraise.config.document import Document
from barnraise.core.errors import InputError, OptionError, RunFileError, UnknownNameError
from barnraise.emulation.fleet import Machine
from barnraise.ledger import Decision
from barnraise.transport.links.presets import parse

from ...simulated_runs import RUN, TOKENS, beginning, end_of, fleet, played


@pytest.fixture(scope="module")
def simulated() -> list[Decision]:
    return played()


@pytest.fixture(scope="module")
def forecast(simulated: list[Decision]) -> RunForecast:
    return of(simulated, 0.3)


def of(rows: list[Decision], share: float, run: dict[str, Any] = RUN, **options: Any) -> RunForecast:
    begun = beginning(rows, share, run["training"]["tokens"])
    return RunForecast(Document("run file", run), of_decisions(begun), begun[-1].time, **options)


def test_a_simulated_run_ends_within_a_tenth_of_its_forecast(simulated: list[Decision], forecast: RunForecast) -> None:
    end, found = end_of(simulated), forecast.unchanged
    assert found.at == pytest.approx(end, rel=0.1)
    assert found.low <= end <= found.high


def test_the_calibrated_simulator_is_as_fast_as_the_run(forecast: RunForecast) -> None:
    assert forecast.unchanged.simulated == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_a_run_with_comings_and_goings_ends_about_as_forecast(tmp_path: Path, seed: int) -> None:
    trace = tmp_path / "trace.csv"
    # bob and cat are away for a quarter of the time, at other times
    lines = [
        f"{name},{start + 80 * place},{state}"
        for name, shift in (("bob", 0), ("cat", 40))
        for place in range(100)
        for start, state in ((shift + 60, "down"), (shift + 80, "up"))
    ]
    trace.write_text("\n".join(["bob,0,up", "cat,0,up", *lines]) + "\n")
    rows = played(churn=trace, seed=seed)
    found, end = of(rows, 0.4).unchanged, end_of(rows)
    assert found.at == pytest.approx(end, rel=0.15)
    assert found.high > end


def test_the_fastest_node_takes_its_share_with_it(forecast: RunForecast) -> None:
    change = forecast.standard()[1]
    assert change.leaving == ("ann",)
    left = forecast.unchanged.left
    assert forecast.compare(change).forecast.left == pytest.approx(left * 7500 / 3500, rel=0.15)


def test_a_node_like_another_does_as_much(forecast: RunForecast) -> None:
    found = forecast.compare(WhatIf("two join", (forecast.joining("ann:2"),)))
    left = forecast.unchanged.left
    assert left * 7500 / 15_500 < found.forecast.left < 0.75 * left  # they prepare for 15 seconds
    assert found.seconds == pytest.approx(found.forecast.left - left)


def test_a_joiner_behind_a_slow_link_does_less(forecast: RunForecast) -> None:
    near, far = (
        forecast.compare(WhatIf("one joins", (forecast.joining(text),))).forecast.left
        for text in ("4000@good", "4000@8kbit/50ms")
    )
    assert near < far


def test_shorter_tasks_behind_slow_links_take_longer() -> None:
    run = RUN | {"training": RUN["training"] | {"tokens": TOKENS // 4}}
    rows = played([Machine(name, 4000.0, parse("100kbit/200ms")) for name in "ab"], run=run)
    found = of(rows, 0.5, run, seeds=1, draws=30)
    assert found.compare(steps_change(5)).seconds > 0.0
    assert found.compare(density_change(1 / 4)).seconds > found.compare(density_change(1 / 256)).seconds


def test_a_run_whose_tasks_adapt_to_slow_links_is_expected_to_speed_up(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("barn raising\n" * 20_000)
    training = RUN["training"] | {
        "tokens": TOKENS // 5,
        "local_steps": 5,
        "compression": "bf16",
        "downlink_compression": "int8",
    }
    run = RUN | {"data": RUN["data"] | {"files": [str(tmp_path / "text.txt")]}, "training": training}
    links = {"ann": "1mbit/5mbit/100ms", "bob": "4mbit/20mbit/50ms", "cat": "1mbit/5mbit/100ms"}
    rows = played([Machine(name, 4000.0, parse(link)) for name, link in links.items()], run=run)
    begun, end = beginning(rows, 0.3, TOKENS // 5), end_of(rows)
    found = RunForecast(Document("run file", run), of_decisions(begun), begun[-1].time).unchanged
    alone = run_forecast_alone(of_decisions(begun), TOKENS // 5, begun[-1].time)
    assert end < found.at < alone.at
    assert found.at == pytest.approx(end, rel=0.15)


def test_a_run_without_nodes_does_not_end(forecast: RunForecast) -> None:
    found = forecast.compare(WhatIf("all leave", leaving=("ann", "bob", "cat", "dan")))
    assert found.forecast.at == math.inf
    assert found.as_json()["seconds"] is found.as_json()["change_seconds"] is None


def test_a_large_fleet_is_played_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_forecast, "MOST_NODES", 6)
    rows = played(fleet((f"node-{place}", 300.0 + 20 * place, "dsl") for place in range(20)))
    found = of(rows, 0.5, seeds=1, draws=20)
    assert found.unchanged.at == pytest.approx(end_of(rows), rel=0.1)
    joined = found.compare(WhatIf("one joins", (found.joining("50@dsl"),)))
    assert joined.seconds == pytest.approx(0.0, abs=0.1 * found.unchanged.left)


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("phoen:3", UnknownNameError, "did you mean 'phone'"),
        ("phone:0", OptionError, "no number of machines from 1 to 1000"),
        ("phone:many", OptionError, "no number of machines"),
        ("phone:1001", OptionError, "no number of machines"),
        ("phone:", OptionError, "no number of machines"),
        ("fast@good", OptionError, "no number of tokens a second"),
        ("-5@good", OptionError, "no number of tokens a second"),
        ("inf@good", OptionError, "no number of tokens a second"),
        ("5@god", UnknownNameError, "did you mean 'good'"),
        ("", UnknownNameError, "unknown kind of machine"),
    ],
)
def test_machines_that_cannot_join_are_refused(
    forecast: RunForecast, text: str, error: type[InputError], told: str
) -> None:
    with pytest.raises(error, match=told):
        forecast.joining(text)


def test_kinds_of_machines_have_their_own_speeds(forecast: RunForecast) -> None:
    phone, server = forecast.joining("phone:3"), forecast.joining("server")
    assert (phone.count, server.count) == (3, 1)
    assert phone.rate < server.rate / 100


def test_settings_that_cannot_work_are_refused(forecast: RunForecast) -> None:
    with pytest.raises(RunFileError, match="local_steps"):
        forecast.compare(steps_change(0))
    with pytest.raises(RunFileError, match="ratio"):
        forecast.compare(density_change(1.5))


def test_a_run_file_that_cannot_be_simulated_is_forecast_all_the_same(simulated: list[Decision]) -> None:
    run = RUN | {"model": {"path": "/nowhere/model"}}
    found = of(simulated, 0.3, run)
    assert found.unchanged.at == pytest.approx(end_of(simulated), rel=0.1)
    assert found.unchanged.simulated is None
    assert "/nowhere/model" in found.problem
