"""When simulated machines leave and come back: fits of real fleets, and traces."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import fmean

import pytest

from barnraise.core.errors import OptionError, UnknownNameError
from barnraise.emulation.chances import Chances
from barnraise.emulation.churn import DEFAULT, FITS, Churn, Drawn, churn_of, read_trace

HOUR = 3600.0


@pytest.mark.parametrize("name", FITS)
def test_drawn_times_have_the_stated_means(name: str) -> None:
    fit, rng = FITS[name], random.Random(0)
    for draw, mean in ((fit.draw_up, fit.mean_up), (fit.draw_down, fit.mean_down)):
        assert fmean(draw(rng) for _ in range(60_000)) == pytest.approx(mean, rel=0.1)


def test_the_fits_are_those_that_were_published() -> None:
    rng = random.Random(1)

    def median(name: str) -> float:
        return sorted(FITS[name].draw_up(rng) for _ in range(20_001))[10_000] / HOUR

    assert median(DEFAULT) == pytest.approx(0.54, rel=0.05)
    assert median("preemptible-weibull") == pytest.approx(1.75 * 0.693 ** (1 / 0.60), rel=0.05)
    ups = [FITS["capped"].draw_up(rng) / HOUR for _ in range(10_000)]
    assert max(ups) <= 40.0
    assert sum(hours < 6.0 for hours in ups) / len(ups) == pytest.approx(1 / 3, abs=0.03)
    assert sum(6.0 <= hours < 15.0 for hours in ups) / len(ups) < 0.05  # the bottom of the tub


def test_as_many_are_up_at_first_as_in_the_long_run() -> None:
    churn = Drawn(FITS[DEFAULT], Chances(0))
    up = fmean(churn.first_start(f"n{number}") == 0.0 for number in range(5_000))
    fit = FITS[DEFAULT]
    assert up == pytest.approx(fit.mean_up / (fit.mean_up + fit.mean_down), abs=0.02)


def trace(tmp_path: Path, text: str) -> Churn:
    path = tmp_path / "fleet.csv"
    path.write_text(text)
    return read_trace(path, ["ann", "bob", "cat"])


def test_a_trace_is_followed(tmp_path: Path) -> None:
    churn = trace(
        tmp_path, "node,seconds,state\nann,10,up\nbob,0,up\n# a remark\nann,30,down\n\nann,45.5,up\nbob,60,down\n"
    )
    assert (churn.first_start("ann"), churn.first_start("bob"), churn.first_start("cat")) == (10.0, 0.0, 0.0)
    assert churn.up("ann", 10.5) == 19.5
    assert churn.down("ann", 30.0) == 15.5
    assert churn.up("ann", 46.0) == float("inf")
    assert churn.down("bob", 60.0) == float("inf")
    assert churn.up("cat", 5.0) == float("inf")


def test_a_machine_may_be_away_at_first(tmp_path: Path) -> None:
    churn = trace(tmp_path, "ann,0,down\nann,30,up\nbob,0,down\ncat,0.2,down\ncat,9,up\n")
    assert (churn.first_start("ann"), churn.up("ann", 30.4)) == (30.0, float("inf"))
    assert churn.first_start("bob") == float("inf")
    assert (churn.first_start("cat"), churn.up("cat", 0.7), churn.down("cat", 0.75)) == (0.0, 0.0, 8.25)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ann,0,up\nann,5\n", "fleet.csv:2: a line has three fields (node, seconds, up or down), not 2"),
        ("eve,0,up\n", "fleet.csv:1: node: 'eve' is no node of this run (ann, bob, cat ...)"),
        ("ann,soon,up\n", "fleet.csv:1: seconds: is 'soon', but must be a number of at least 0"),
        ("ann,-1,up\n", "fleet.csv:1: seconds: is '-1'"),
        ("ann,nan,up\n", "fleet.csv:1: seconds: is 'nan'"),
        ("ann,1,on\n", "fleet.csv:1: state: is 'on', but must be up or down"),
        ("ann,1,up\nann,2,up\n", "fleet.csv:2: state: 'ann' is up already"),
        ("ann,5,up\nbob,1,up\nann,4,down\n", "fleet.csv:3: seconds: is 4, but 'ann' is at 5 already"),
    ],
)
def test_a_wrong_line_is_named_with_its_field(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(OptionError) as caught:
        trace(tmp_path, text)
    assert problem in str(caught.value)


def test_a_field_that_no_trace_has_is_named_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"\.csv:2: field larger than field limit"):
        trace(tmp_path, f"ann,1,up\n{'a' * 200_000},2,up\n")


def test_a_name_that_is_neither_fit_nor_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'desktop'"):
        churn_of("dekstop", [])
    with pytest.raises(OptionError, match=r"nowhere\.csv cannot be read"):
        churn_of(str(tmp_path / "nowhere.csv"), [])
