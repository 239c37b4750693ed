"""A standby as candidate: it listens to the controller and to its workers, and may become the controller.

`controller.standby.succession` decides. Until then, the ledger's epoch stays, workers are only asked to identify
themselves, and the follower continues to dial the controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

from barnraise.assembly.ports import Ports
from barnraise.assembly.requests import take_over_wanted
from barnraise.assembly.voice import Voice
from barnraise.controller.standby.follower import TICK, Follower
from barnraise.controller.standby.succession import Stage, Succession
from barnraise.controller.state.fold import apply
from barnraise.controller.state.state import NodeState, State
from barnraise.core.errors import AddressError, RunDirectoryError, WireError
from barnraise.ledger import LedgerView, RunDirectory
from barnraise.ledger.decisions import NodeChanged
from barnraise.transport import Keys
from barnraise.transport.base import Delivery
from barnraise.transport.handover import HandoverListener
from barnraise.transport.seals import supersedes
from barnraise.wire.frames import decode_from_worker, encode
from barnraise.wire.messages import Hello, Identify

TELL = 10.0
"""Seconds between two messages about the workers that have come."""

ASK = 1.0
"""Seconds between two questions to a worker that has not identified itself."""


class Candidacy:
    """The shell of one `Succession`.

    `handover` is open while this standby is a candidate, and stays so once it is confirmed.
    """

    def __init__(self, run: RunDirectory, follower: Follower, ports: Ports, voice: Voice) -> None:
        self._run, self._follower, self._ports, self._voice = run, follower, ports, voice
        self.succession, self.handover = Succession(follower.lease), HandoverListener()
        self._keys: dict[str, str] = {}  # keys of the workers that may greet -> names
        self._asked: dict[str, float] = {}
        self._hearing: asyncio.Task[None] | None = None
        self._said_at = 0.0
        self._said_later = False

    def told(self) -> None:
        """Take over, as the host has decided."""
        self.succession.told = True

    async def decide(self) -> None:
        """Return once this standby is the controller.

        Raises AddressError, StorageError; RunDirectoryError where it is told to take over with a copy that is not
        complete.
        """
        succession, follower = self.succession, self._follower
        while succession.stage is not Stage.CONFIRMED:
            await asyncio.sleep(TICK)
            if take_over_wanted(self._run):
                self.told()
            if succession.told and not follower.complete:
                raise RunDirectoryError(
                    f"{self._run.path} is no complete copy yet: it cannot take over; wait until it says so"
                )
            if self._hearing is not None and self._hearing.done():
                self._hearing.result()
            before, succession.lease = succession.stage, follower.lease
            stage = succession.look(follower.silence, complete=follower.complete)
            if stage is before:
                self._tell()
            elif stage is Stage.CANDIDATE:
                await self._stand()
            elif stage is Stage.FOLLOWING:
                await self._yield()
        await self._hear_no_more()
        self._voice.say(self._why())

    async def close(self) -> None:
        """Close the handover listener, unless the controller has taken it."""
        await self._hear_no_more()
        await self.handover.close()

    async def _stand(self) -> None:
        """Listen to the workers as a candidate."""
        nodes = await asyncio.to_thread(_nodes, self._run)
        self.succession.expect({node.id: node.owner for node in nodes.values() if node.live})
        self._keys = {node.badge.key: node.id for node in nodes.values() if not node.revoked}
        controllers = Keys.load(self._run.keys / "controller.json")
        self._ports.release()
        await self.handover.open(self._ports.uri, controllers, self._keys)
        self._hearing = asyncio.ensure_future(self._hear(controllers))
        self._said_at = time.monotonic()
        self._voice.say(
            f"the controller has been silent for {self._follower.silence:.1f} s: listening to its workers at "
            f"{self._ports.uri}, and still dialling it; this copy takes over after {self._follower.lease:g} s, once "
            f"{self._wanted()}"
        )

    async def _yield(self) -> None:
        """Follow again; workers that came are refused, and return to the controller."""
        await self._hear_no_more()
        await self.handover.close()
        self._voice.say("the controller answers again: following it, nothing has changed")
        with contextlib.suppress(AddressError):  # the port is free as long as no process takes it
            self._ports.take()

    async def _hear(self, controllers: Keys) -> None:
        while batch := await self.handover.receive_many():
            for delivery in batch:
                with contextlib.suppress(WireError):
                    self._greeted(delivery, controllers)

    def _greeted(self, delivery: Delivery, controllers: Keys) -> None:
        peer, frames = delivery
        node = self._keys.get(peer.key)
        if node is None:
            return
        message, _ = decode_from_worker(frames)
        if not isinstance(message, Hello):
            now = time.monotonic()
            if now - self._asked.get(node, 0.0) >= ASK:
                self._asked[node] = now
                self.handover.listener.send(peer, encode(Identify()))
        elif supersedes(message.term, self._follower.term, controllers, self._run.path.name):
            if not self._said_later:
                self._voice.warn(
                    f"worker '{node}' has worked for a later controller (epoch {message.term.epoch}) than the one "
                    f"that this copy follows (epoch {self._follower.term.epoch}): this copy does not count such "
                    "workers"
                )
            self._said_later = True
        else:
            self.handover.aside[peer.key] = delivery
            self.succession.greeted(node, self._follower.silence)

    async def _hear_no_more(self) -> None:
        hearing, self._hearing = self._hearing, None
        if hearing is not None:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    def _tell(self) -> None:
        now, succession = time.monotonic(), self.succession
        if now - self._said_at < TELL:
            return
        if succession.stage is Stage.FOLLOWING:
            self._tell_why_not(now)
            return
        self._said_at = now
        lasting = ""
        if succession.since is not None:
            left = succession.lasts_until - self._follower.silence
            lasting = (
                f"; they came {succession.since:.0f} s after this copy's last row, and have to stay for {left:.0f} s "
                "more, because a takeover loses the work of that time"
            )
        self._voice.say(
            f"the controller has been silent for {self._follower.silence:.0f} s; {self._came()}{lasting}; to take over "
            f"all the same: barnraise standby --take-over {self._run.path}"
        )

    def _tell_why_not(self, now: float) -> None:
        """Report that the controller is silent while the copy is incomplete."""
        silence = self._follower.silence
        if silence < self.succession.lease or self._follower.complete:
            return
        self._said_at = now
        self._voice.warn(
            f"the controller has been silent for {silence:.0f} s, and this copy cannot take over: it is not complete "
            "(the controller had deleted payloads before they were copied, and the checkpoint that holds them has not "
            "come). Waiting for the controller; if it is gone, resume the run where it was"
        )

    def _wanted(self) -> str:
        succession = self.succession
        if not succession.owners:
            return "one of its workers has come (none was there when the controller was last heard)"
        return (
            f"more than half of the {len(succession.owners)} workers that were there have come ({succession.wanted}), "
            "and more than half of their owners"
        )

    def _came(self) -> str:
        succession = self.succession
        return f"{succession.present} of {len(succession.owners)} workers have come, {succession.wanted} are wanted"

    def _why(self) -> str:
        if self.succession.told:
            return "told to take over"
        return f"the controller was silent for {self._follower.silence:.1f} s, and {self._came()}"


def _nodes(run: RunDirectory) -> Mapping[str, NodeState]:
    """Return the nodes of a run by name, from its ledger."""
    state = State()
    with LedgerView(run.ledger) as view:
        for _, decision in view.find(NodeChanged, "1"):
            apply(state, decision)
    return state.nodes
