"""Keys over the wire: contributions are signed, and a node takes new keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from barnraise.controller.state.settings import ProtectionSettings
from barnraise.controller.work.sanctions import MOST
from barnraise.ledger.decisions import NodeChanged, Noted
from barnraise.ledger.evidence import Signatures
from barnraise.ledger.notes import Offended
from barnraise.transport import Keys
from barnraise.trust.signatures import RunId, rotation, signed
from barnraise.wire.messages import PROTOCOL_VERSION, Ack, Enrol, Enrolled, Offer, SendPayload, Stop

from ..masked_runs import MASKS
from .test_server import Client, Cluster, run, update


def test_an_unsigned_contribution_is_refused_before_its_upload(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client(signs=True)
        await client.hello()
        for _ in range(2):
            await client.offer(await client.task(), update(-0.25), inline=False)
            answer = await client.expect(Ack | SendPayload)
            assert isinstance(answer, Ack)
            assert "is not signed" in answer.reason
        assert cluster.machine.state.nodes["n0"].tally.refused == 2
        await accepted(client, await client.task())
        proof, rows = Signatures(), [row for _, row in cluster.ledger.replay()]
        assert [reason for row in rows if (reason := proof.wrong(row))] == []
        assert proof.signed == 1

    run(tmp_path, scenario)


def test_a_node_that_does_not_sign_is_dismissed_whatever_it_does_between(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client(signs=True)
        await client.hello()
        for number in range(MOST):
            if number == MOST - 1:
                await accepted(client, await client.task())
            task = await client.task()
            forged = signed(
                RunId("test", client.server_key), "n0", client.made(task, update(1.0)), Keys.generate().signer
            )
            await client.send(Offer(forged), update(1.0))
            assert "wrong signature" in (await client.expect(Ack)).reason
        told = await client.expect(Stop)
        assert not told.final
        assert f"{MOST} results that no honest machine produces" in told.reason
        assert "is not signed by the key" in told.reason
        changes = [d for d in cluster.decisions(NodeChanged) if d.change == "dismissed"]
        assert [d.reason for d in changes] == [told.reason]
        assert not cluster.machine.state.nodes["n0"].live
        (found,) = [d.note for d in cluster.decisions(Noted) if isinstance(d.note, Offended)]
        assert found.count == MOST
        assert cluster.machine.state.nodes["n0"].tally.reputation.convicted == 1

    run(tmp_path, scenario)


def test_a_node_takes_new_keys_by_the_word_of_its_old_one_alone(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        old = await cluster.client(signs=True)
        await old.hello()
        await accepted(old, await old.task())
        new, thief = await cluster.client(enrolled=False), await cluster.client(enrolled=False)

        async def rotate(client: Client, word: str) -> Any:
            signer = client.keys.signer.public
            await client.send(Enrol(PROTOCOL_VERSION, "", "n0", "0" * 64, "0" * 64, signer=signer, endorsement=word))
            return await client.expect(Enrolled | Stop)

        def word(by: Keys, key: Keys, node: str = "n0") -> str:
            told = rotation(RunId("test", cluster.keys.public), node, key.public, key.signer.public)
            return by.signer.sign(told)

        for forged in (word(thief.keys, thief.keys), word(old.keys, new.keys), word(old.keys, thief.keys, "n1")):
            assert "has not vouched" in (await rotate(thief, forged)).reason
        assert (await rotate(new, word(old.keys, new.keys))).node == "n0"
        changes = [d for d in cluster.decisions(NodeChanged) if d.change == "rekeyed"]
        assert [(d.key, d.signer) for d in changes] == [(new.keys.public, new.keys.signer.public)]
        await new.hello()
        await accepted(new, await new.task())
        assert old.keys.public not in cluster.machine.state.roster.keys
        assert "has not vouched" in (await rotate(thief, word(old.keys, thief.keys))).reason, "the old key's word"
        payloads, next_one = cluster.machine.settings.payloads, await cluster.client(enrolled=False)
        masked = replace(payloads, protection=ProtectionSettings(masks=MASKS))
        cluster.machine.settings = replace(cluster.machine.settings, payloads=masked)
        told = await rotate(next_one, word(new.keys, next_one.keys))
        assert "trustees of this masked run know 'n0' by its first keys" in told.reason

    run(tmp_path, scenario)


async def accepted(client: Client, task: Any) -> None:
    """The client's work on the task is signed, and taken."""
    made = client.made(task, update(-0.25))
    await client.send(Offer(signed(RunId("test", client.server_key), "n0", made, client.keys.signer)), update(-0.25))
    assert (await client.expect(Ack)).accepted
