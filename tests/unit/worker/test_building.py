"""Terms of a worker's owner that a run has to meet before anything is fetched or built for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.maskings import committee

from barnraise.core.errors import InputError
from barnraise.privacy.masking.roster import TrusteeRoster
from barnraise.transport import Keys
from barnraise.wire.messages import Masks
from barnraise.worker.building import require_masks
from barnraise.worker.options import Safeguards, WorkerOptions

from ...masked_runs import SETTINGS

MASKS = Masks(value_bits=12, most_members=8, limit=0.5, size=300, colluding=1, group=2, least=2)


def options(roster: TrusteeRoster | None) -> WorkerOptions:
    return WorkerOptions(
        "zmq://127.0.0.1:1", "key", "ann", Keys.generate(), Path("data"), safeguards=Safeguards(roster)
    )


def test_a_worker_whose_owner_named_trustees_refuses_a_run_without_masks() -> None:
    roster, plain = TrusteeRoster(committee(), ("A", "B", "C", "D"), "trustees.txt"), SETTINGS.worker
    masked = replace(plain, uplink=replace(plain.uplink, masks=MASKS))
    with pytest.raises(InputError, match=r"this run masks no updates, but --trustees trustees\.txt asks for masks"):
        require_masks(plain, options(roster))
    require_masks(masked, options(roster))
    require_masks(plain, options(None))
