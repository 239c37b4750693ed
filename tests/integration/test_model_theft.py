"""The roles whose machines obtain the model from a controller that works: measured by what it answers to each."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from safetensors.torch import load_file

from barnraise.ledger import RunDirectory
from barnraise.models.vectors import digest
from barnraise.transport import proof
from barnraise.trust.roles import OBSERVER, of_nodes
from barnraise.wire.frames import encode
from barnraise.wire.messages import PROTOCOL_VERSION, Enrolled, Fetch, Welcome
from barnraise.wire.observing import Observe

from .test_roles import Guest, guest
from .test_standbys import Led, leading, run_directory, within

EXPECTED = {"stranger": False, "observer": False, "worker": True, "helper": True, "standby": True, "trustee": False}
"""Whether a machine of the role, which knows the newest version's digest, obtains the model."""


async def heard(who: Guest, last: set[str]) -> dict[str, bytes]:
    """Return the raw bytes behind each message, by its kind, up to the first of the kinds `last`."""
    found: dict[str, bytes] = {}
    async with asyncio.timeout(20.0):
        while not last & set(found):
            header, *raw = await who.connection.receive()
            tag = msgspec.msgpack.decode(header)["t"]
            found[tag] = found.get(tag, b"") + b"".join(bytes(one) for one in raw)
    return found


async def ask_for_model(led: Led, who: Guest) -> None:
    size = led.host.machine.settings.payloads.snapshot
    await who.connection.send(encode(Fetch(led.host.machine.state.newest.digest, 0, min(size, 1 << 20))))


def observation(who: Guest, invite: Any) -> Observe:
    nonce = secrets.token_hex(32)
    mark = proof(invite.secret, invite.server_key, who.keys.public, "looker", nonce)
    return Observe(PROTOCOL_VERSION, invite.token, "looker", nonce, mark)


def test_the_model_is_given_to_workers_helpers_and_the_standby_alone(tmp_path: Path) -> None:
    run, found = run_directory(tmp_path), dict[str, bool]()

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _):
            wanted = led.host.machine.state.newest.digest
            for role in of_nodes():
                async with guest(led) as who:
                    assert isinstance(await who.enrol(led.invite(role.name), role.name), Enrolled)
                    assert isinstance(await who.hello(), Welcome)
                    await ask_for_model(led, who)
                    chunk = (await heard(who, {"Chunk", "Stop", "Gone"})).get("Chunk", b"")
                    vector = np.frombuffer(chunk, np.float32).copy()
                    found[role.name] = digest(torch.from_numpy(vector)) == wanted
            async with guest(led) as who:
                invite = led.invite(OBSERVER)
                for name in ("stranger", "observer"):
                    await ask_for_model(led, who)
                    await who.connection.send(encode(observation(who, invite)))
                    found[name] = "Chunk" in await heard(who, {"Observed"})
            async with led.follower() as follower:
                following = asyncio.ensure_future(follower.follow())
                await led.complete(follower, following)
                following.cancel()
            copy = RunDirectory(tmp_path / "copy" / run.path.name)
            tensors = [one for path in copy.checkpoints.rglob("*.safetensors") for one in load_file(path).values()]
            found["standby"] = wanted in {digest(one) for one in tensors}

    within(60.0, play())
    assert {name: found[name] for name in EXPECTED} == EXPECTED
