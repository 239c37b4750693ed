"""Releases of a site, and the rounding of its counts."""

from __future__ import annotations

import msgspec
import pytest

from barnraise.core.sites import OwnRows, Releases, rounded


def test_the_more_reserved_setting_counts_whichever_side_has_it() -> None:
    run, site = Releases(loss="off", held_out="each"), Releases(seconds="noised", telemetry="off", held_out="off")
    expected = Releases(loss="off", seconds="noised", telemetry="off", held_out="off")
    assert run.within(site) == site.within(run) == expected


@pytest.mark.parametrize("count", [1, 9, 10, 99, 100, 101, 999, 1000, 123_456, 2**40])
def test_a_rounded_count_is_near_on_its_side(count: int) -> None:
    up, down = rounded(count, up=True), rounded(count, up=False)
    assert down <= count <= up <= 1.1 * count + 1e-9
    assert down >= 0.9 * count
    assert len(str(up).rstrip("0")) <= 2


@pytest.mark.parametrize(
    "changes", [{"rows": 0}, {"rows": 2**41}, {"held_out": -1}, {"digest": "x"}, {"form": "f" * 65}, {"losses": "all"}]
)
def test_a_claim_beyond_its_limits_is_not_decoded(changes: dict[str, object]) -> None:
    whole = {"rows": 5, "held_out": 1, "digest": "d" * 64, "form": "f" * 64, "losses": "mean"}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(whole), type=OwnRows).rows == 5
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(whole | changes), type=OwnRows)
