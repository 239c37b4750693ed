"""Runs a Python command whose controller has a witness at its doors: `hosted.py FOLDER python -m barnraise.cli.main`.

It writes the number of admitted messages by key to FOLDER/let-in.json each time that a file FOLDER/ask appears.
"""

from __future__ import annotations

import asyncio
import json
import runpy
import sys
from pathlib import Path

from barnraise.transport import Listener, handover

sys.path.append(str(Path(__file__).parents[2]))  # run as a script, it finds the kit by the checkout's root
from tests.intrude.kit.evidence import Witness

LOOK_SECONDS = 0.1
listener_for = handover.listener_for


def witnessed(uri: str) -> Listener:
    witness = Witness([listener_for(one) for one in uri.split()])
    tell(witness)
    return witness


def tell(witness: Witness) -> None:
    """Look for the file `ask`, now and from now on."""
    if (FOLDER / "ask").exists():
        (FOLDER / "let-in.json").write_text(json.dumps(witness.let_in))
        (FOLDER / "ask").unlink()
    asyncio.get_running_loop().call_later(LOOK_SECONDS, tell, witness)


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    sys.argv = sys.argv[4:]
    handover.listener_for = witnessed
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
