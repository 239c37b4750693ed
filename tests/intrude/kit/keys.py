"""Attempts with keys of no member, of another member, or of a former member."""

from __future__ import annotations

from dataclasses import replace

from zmq.utils import z85

from barnraise.core.errors import AddressError, WireError
from barnraise.core.types import KINDS, Blob, NodeProfile
from barnraise.transport import Keys
from barnraise.transport.http.noise import Initiator, _public
from barnraise.wire.messages import PROTOCOL_VERSION, Fetch, Heartbeat, Hello, Leave, Message, RequestTask, Subscribe

from .base import Attempt, Trace
from .evidence import no_message, no_node, no_session, stays_out
from .raw import Hand
from .scene import HEARING, Cast, Scene, say, told
from .ways import HTTP


class UnknownKey(Attempt):
    """Says with a fresh key what members say. Any key may shake hands, and then ask to enrol, and nothing else."""

    async def make(self, scene: Scene, way: str) -> Trace:
        keys, session = Keys.generate(), self.rng.randrange(1, 2**53)
        answers = await say(scene.invite(way), keys, member_words(scene.casts[way], session))
        return Trace(told(answers), (no_node(keys.public), no_session(session)))


class WrongServerKey(Attempt):
    """Dials as if the controller had another key: who never had an invite, or who sits in between."""

    async def make(self, scene: Scene, way: str) -> Trace:
        keys = Keys.generate()
        invite = replace(scene.invite(way), server_key=Keys.generate().public)
        answers = await say(invite, keys, [Heartbeat(0.0)], ready=False)
        return Trace(told(answers), (no_message(keys.public), no_node(keys.public)))


class StolenPublicKey(Attempt):
    """Poses as a member whose public key it has, and not the secret one."""

    async def make(self, scene: Scene, way: str) -> Trace:
        absent, session = scene.casts[way].absent, self.rng.randrange(1, 2**53)
        words = [hello(session), RequestTask(-1)]
        marks = (no_session(session), no_message(absent.keys.public, lambda: absent.num_sent))
        if way == HTTP:
            return Trace(await self._in_its_name(scene, absent.keys.public), marks)
        keys = Keys(absent.keys.public, Keys.generate().secret)
        return Trace(told(await say(scene.invite(way), keys, words, ready=False)), marks)

    async def _in_its_name(self, scene: Scene, key: str) -> str:
        hand = Hand(scene.address(HTTP), Keys.generate(), scene.invite(HTTP).server_key)
        hand.initiator = Impostor(Keys.generate(), scene.invite(HTTP).server_key, named=key)
        try:
            await hand.open()
        except (AddressError, WireError):
            return ""
        finally:
            hand.client.close()
        return "a session in another's name"


class Impostor(Initiator):
    """A client that makes the handshake for a key whose secret half it lacks."""

    def __init__(self, keys: Keys, server_key: str, named: str) -> None:
        super().__init__(keys, server_key)
        self._named = z85.decode(named)

    def start(self, payload: bytes = b"") -> bytes:
        ephemeral = _public(self._ephemeral)
        self._state.mix_hash(ephemeral)
        self._state.mix_key(self._ephemeral, self._server)
        static = self._state.seal(self._named)
        self._state.mix_key(self._static, self._server)
        return ephemeral + static + self._state.seal(payload)


class RevokedKey(Attempt):
    """A member that was put out while it was connected sends more, over that connection or a new one."""

    async def make(self, scene: Scene, way: str) -> Trace:
        async with scene.cast(way) as cast:
            node, session = cast.outcast, self.rng.randrange(1, 2**53)
            words, marks = member_words(cast, session), (no_session(session), stays_out(node.name))
            if self.rng.random() < 0.5:
                return Trace(told(await say(scene.invite(way), node.keys, words)), marks)
            while not node.heard.empty():
                node.heard.get_nowait()
            for word in words:
                await node.send(word)
            answer = await node.expect(Message, seconds=HEARING)
            return Trace(told([answer] if answer is not None else []), marks)


def hello(session: int, protocol: int = PROTOCOL_VERSION) -> Hello:
    """The greeting of a process that was started just now."""
    return Hello(protocol, session, 1, NodeProfile(1000.0), -1, kinds=tuple(KINDS))


def member_words(cast: Cast, session: int) -> list[Message]:
    """Return the messages that only members may send: about a run that exists, and about another member's work."""
    assert cast.insider.welcome is not None
    manifest: Blob = cast.insider.welcome.manifest
    words = [
        Heartbeat(0.0),
        RequestTask(-1),
        Subscribe(-1),
        Fetch(manifest.digest, 0, manifest.num_bytes),
        cast.done,
        Leave(),
    ]
    return [hello(session), *words]
