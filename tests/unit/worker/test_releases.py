"""Things that a worker with rows of its own withholds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.state_machine.engine import WORKER_SETTINGS, contribution, finding, told
from tests.tasks import train

from barnraise.core.sites import OwnFiles, Releases, SiteTerms
from barnraise.core.types import Blob, LinkReport, Load, NodeProfile, Telemetry
from barnraise.transport import Keys
from barnraise.wire.messages import PROTOCOL_VERSION, Heartbeat, Hello, RequestTask, Welcome
from barnraise.worker.options import WorkerOptions
from barnraise.worker.releases import SENT, reserved
from barnraise.worker.withholding import effective, withheld

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "site-data.md"

MESSAGES = [
    Hello(PROTOCOL_VERSION, 1, 1, NodeProfile(100.0, 5, 6, "cuda"), -1),
    Heartbeat(1.0, Telemetry(Load(0.5))),
    RequestTask(3, LinkReport(0.1, 1000.0, 2000.0)),
]


def welcome_of(releases: Releases | None) -> Welcome:
    settings = told(WORKER_SETTINGS, site=SiteTerms(0.1, releases) if releases else None)
    return Welcome("run", "ann", 1, settings, Blob("f" * 64, 10), 1.0, 5.0)


def options_of(folder: Path, releases: Releases | None) -> WorkerOptions:
    own = OwnFiles(("a.txt",), releases) if releases is not None else None
    return WorkerOptions("tcp://127.0.0.1:1", "", "ann", Keys.generate(), folder, own=own)


def test_a_worker_without_rows_of_its_own_withholds_nothing(tmp_path: Path) -> None:
    assert [withheld(message, None) for message in MESSAGES] == MESSAGES
    result = contribution(train(1))
    assert reserved(result, welcome_of(None), options_of(tmp_path, None)) is result


def test_silent_telemetry_and_machine_leave_no_trace_of_the_machine() -> None:
    sent = [withheld(message, Releases(telemetry="off", machine="off")) for message in MESSAGES]
    assert sent == [Hello(PROTOCOL_VERSION, 1, 1, NodeProfile(), -1), Heartbeat(1.0), RequestTask(3)]
    assert [withheld(message, Releases()) for message in MESSAGES] == MESSAGES


def test_the_runs_terms_count_once_they_are_known() -> None:
    most = Releases(loss="noised")
    assert effective(most, None) == most
    assert effective(most, welcome_of(Releases(telemetry="off"))) == Releases(loss="noised", telemetry="off")
    assert effective(None, welcome_of(None)) is None


@pytest.mark.parametrize("side", ["run", "site"])
def test_losses_and_seconds_are_withheld_or_noised_by_either_side(side: str, tmp_path: Path) -> None:
    result = contribution(train(1), loss=1.5, seconds=0.5)

    def sent(releases: Releases) -> tuple[float, float, int]:
        run, site = (releases, Releases()) if side == "run" else (Releases(), releases)
        found = reserved(result, welcome_of(run), options_of(tmp_path, site))
        return found.loss, found.seconds, found.steps

    assert sent(Releases()) == (1.5, 0.5, result.steps)
    assert sent(Releases(loss="off", seconds="off")) == (0.0, 0.0, result.steps)
    noised = [sent(Releases(loss="noised", seconds="noised")) for _ in range(200)]
    assert len(set(noised)) == 200
    assert all(loss >= 0.0 and seconds > 0.0 for loss, seconds, _ in noised)
    assert abs(sum(loss for loss, _, _ in noised) / 200 - 1.5) < 0.25, "14 standard deviations of the mean"


def test_the_loss_of_a_measurement_is_not_that_of_training(tmp_path: Path) -> None:
    result = msgspec.structs.replace(finding(train(1)), loss=2.5)
    off = Releases(loss="off", seconds="off")
    assert reserved(result, welcome_of(off), options_of(tmp_path, off)).loss == 2.5


def test_each_release_is_in_the_table_of_what_is_sent() -> None:
    assert {item.release for item in SENT} - {""} == set(Releases.__struct_fields__)


def test_the_guide_lists_all_that_a_site_sends() -> None:
    text = GUIDE.read_text("utf-8")
    for item in SENT:
        release = f" `{item.release}`:" if item.release else " |"
        assert f"| {item.what} | {item.when} |{release}" in text
