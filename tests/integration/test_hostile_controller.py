"""A worker with real sockets against a controller that is wrong, damaged or hostile: it ends with a reason."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from barnraise import transport
from barnraise.core.digests import LEAF_BYTES, TreeHash
from barnraise.core.types import Batches, Blob, News, ParameterRange, RowRange, Update
from barnraise.data import shards
from barnraise.data.meta import MAX_META_BYTES, Format
from barnraise.models import config, memory
from barnraise.transport import Keys
from barnraise.wire.frames import decode_from_worker, encode
from barnraise.wire.manifest import MANIFEST_LIMIT, Manifest
from barnraise.wire.messages import (
    Ack,
    Assign,
    Chunk,
    Fetch,
    Gone,
    Heartbeat,
    Hello,
    Leave,
    Message,
    Offer,
    Pulse,
    RequestTask,
    Stop,
    Welcome,
)
from barnraise.worker import fetching
from barnraise.worker.options import Means, Outcome, WorkerOptions
from barnraise.worker.runtime import WorkerRuntime

from ..state_machine.engine import told
from ..tasks import train

ESCAPES = "\x1b[2J\x1b]0;pwned\x07\x1b]52;c;Y3VybA==\x07\u202eover"
CONTEXT, VOCABULARY = 16, 300
SETTINGS = told(
    inner={
        "batch_size": 4, "optimizer": "adamw", "options": {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.01},
        "gradient_clip": 1.0,
    },
    overlap=False,
)  # fmt: skip


def model(**sizes: Any) -> dict[str, Any]:
    section = {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2} | sizes}
    return config.describe(section, VOCABULARY, CONTEXT)


class Scripted:
    """A controller that says what it is told to say. `blobs` are what it serves, `heard` what came in."""

    num_rows, shard_bytes = 64, 1 << 20
    means = Means()

    def __init__(self, folder: Path, resolved: dict[str, Any] | None = None, **settings: Any) -> None:
        form = Format(kind="text", tokenizer="bytes", context=CONTEXT, vocab_size=VOCABULARY)
        rows = (np.arange(self.num_rows * CONTEXT) % 250).astype(np.uint16).reshape(self.num_rows, CONTEXT)
        shards.write(folder / "made", form, [rows], rows[:4], shard_bytes=self.shard_bytes)
        self.dataset = shards.Dataset.open(folder / "made")
        self.blobs = {info.sha256: (folder / "made" / info.name).read_bytes() for info in self.dataset.files()}
        self.shard = self.dataset.meta.shards[0]
        resolved = resolved or model()
        size = memory.model_size(resolved)
        self.start = np.zeros(min(size, 10**6), np.float32).tobytes()
        info = self.dataset.files()[0]
        self.manifest = self.add(Manifest(resolved, Blob(info.sha256, info.bytes), size).encode())
        self.version = self.add_snapshot(self.start)
        self.settings = told(SETTINGS, **settings)
        self.intervals = 1.0, 10.0
        self.task = train(
            tokens=8 * CONTEXT,
            steps=2,
            batch_size=4,
            parameters=ParameterRange(0, size),
            updates=(Update("snapshot", 0, self.version, self.version.digest),),
            max_staleness=9,
        )
        self.heard: Counter[str] = Counter()
        self.left = ""
        self.folder, self.keys, self.tasks = folder, Keys.generate(), 0

    def add(self, content: bytes) -> Blob:
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return Blob(digest, len(content))

    def add_snapshot(self, content: bytes) -> Blob:
        digest, starts = TreeHash(content).hexdigest(), range(0, len(content), LEAF_BYTES)
        leaves = (hashlib.sha256(content[start : start + LEAF_BYTES]).digest() for start in starts)
        self.blobs[digest] = content + b"".join(leaves)
        return Blob(digest, len(content))

    def answer(self, message: Message) -> tuple[Message, bytes | None] | None:
        match message:
            case Hello():
                welcome = Welcome("run", "a", message.greeting, self.settings, self.manifest, *self.intervals)
                return welcome, None
            case Heartbeat():
                return Pulse(message.sent, *self.intervals), None
            case RequestTask():
                return Assign(msgspec.structs.replace(self.task, id=self.heard["RequestTask"])), None
            case Fetch():
                piece = self.blobs.get(message.digest, b"")[message.offset :][: message.num_bytes]
                return (Chunk(message.digest, message.offset), piece) if piece else (Gone(message.digest), None)
            case Leave():
                self.left = message.reason
        return None

    async def serve(self, listener: Any) -> None:
        while batch := await listener.receive_many():
            for peer, frames in batch:
                message, _ = decode_from_worker(frames)
                self.heard[type(message).__name__] += 1
                if answer := self.answer(message):
                    listener.send(peer, encode(*answer))

    def run(self, say: Callable[[str], None] = lambda text: None, *, leaves: bool = False) -> Outcome:
        """A worker's life with this controller; with `leaves` the controller hears its last word."""

        async def main() -> Outcome:
            listener = transport.create("zmq").listener()
            uri = await listener.bind("zmq://127.0.0.1:0", self.keys)
            serving = asyncio.ensure_future(self.serve(listener))
            moments = self.folder / "moments.safetensors"
            options = WorkerOptions(uri, self.keys.public, "a", Keys.generate(), self.folder / "cache", moments)
            options = replace(options, means=self.means, replica=self.folder / "replica")
            self.runtime = WorkerRuntime(options, say=say)
            try:
                async with asyncio.timeout(90):
                    outcome = await self.runtime.run()
                    while leaves and not self.left:
                        await asyncio.sleep(0.01)
                    return outcome
            finally:
                serving.cancel()
                await listener.close()

        return asyncio.run(main())


def test_the_words_of_a_controller_cannot_command_the_terminal(tmp_path: Path) -> None:
    class Shouting(Scripted):
        def answer(self, message: Message) -> tuple[Message, bytes | None] | None:
            return (Stop(ESCAPES), None) if isinstance(message, Hello) else super().answer(message)

    outcome = Shouting(tmp_path).run()
    assert outcome.reason.isprintable()
    assert "over" in outcome.reason


def test_a_manifest_that_quotes_escapes_cannot_either(tmp_path: Path) -> None:
    outcome = Scripted(tmp_path, {**model(), f"x{ESCAPES}": 1}).run()
    assert not outcome.final
    assert outcome.reason.isprintable()
    assert "gpt2 has no config key" in outcome.reason


@pytest.mark.parametrize("intervals", [(0.0, 10.0), (1.0, 0.0), (1e-5, 1.0), (1.0, 1e9)])
def test_impossible_intervals_are_refused(tmp_path: Path, intervals: tuple[float, float]) -> None:
    controller = Scripted(tmp_path)
    controller.intervals = intervals
    outcome = controller.run()
    assert not outcome.final
    assert "workers keep to 0.01 s to 1e+06 s" in outcome.reason
    assert controller.heard["Heartbeat"] <= 1
    assert controller.heard["Fetch"] == 0


@pytest.mark.parametrize(
    ("resolved", "settings", "reason"),
    [
        (model(hidden_size=8192, num_layers=80), {}, "need about .* of memory, but .* are available"),
        (model(), {"inner": {"batch_size": 0}}, "sets batch_size to '0'"),
        (model(), {"inner": {"precision": "load"}}, "sets precision to 'load'"),
        (model(), {"inner": {"options": {"beta1": 0.9}}}, "known, with their options: adamw"),
        (model(), {"uplink": {"codec": "os:system"}}, "unknown codec 'os:system'"),
        ({**model(), "n_positions": 4}, {}, "has rows of 16 tokens"),
    ],
)
def test_a_worker_refuses_impossible_settings_before_it_builds_the_model(
    tmp_path: Path, resolved: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    controller = Scripted(tmp_path, resolved, **settings)
    outcome = controller.run(leaves=True)
    assert not outcome.final
    assert re.search(reason, outcome.reason), outcome.reason
    assert controller.left == outcome.reason


class Enough(Scripted):
    """A controller that says that the run is over as soon as a worker offers a result."""

    def answer(self, message: Message) -> tuple[Message, bytes | None] | None:
        return (Stop("that is enough"), None) if isinstance(message, Offer) else super().answer(message)


def test_a_batch_that_would_take_minutes_is_not_measured(tmp_path: Path) -> None:
    """How fast the machine is, it says before its first task: that was measured on whole batches."""
    outcome = Enough(tmp_path, inner={"batch_size": 2**40}).run()
    assert outcome.final
    assert outcome.reason == "that is enough"


def test_a_manifest_that_lies_about_its_models_size_is_refused(tmp_path: Path) -> None:
    controller = Scripted(tmp_path)
    info = controller.dataset.files()[0]
    controller.manifest = controller.add(Manifest(model(), Blob(info.sha256, info.bytes), 2**52).encode())
    assert "speaks of 4503599627370496 parameters" in controller.run().reason


def test_descriptions_that_are_too_large_are_refused_before_they_are_fetched(tmp_path: Path) -> None:
    controller = Scripted(tmp_path)
    manifest, controller.manifest = controller.manifest, Blob("0" * 64, MANIFEST_LIMIT + 1)
    assert "manifest has 1,048,577 bytes, but a worker takes 1,048,576" in controller.run().reason
    assert controller.heard["Fetch"] == 0
    content = msgspec.json.decode(controller.blobs[manifest.digest])
    content["dataset"]["num_bytes"] = MAX_META_BYTES + 1
    controller.manifest, controller.keys = controller.add(msgspec.json.encode(content)), Keys.generate()
    assert "description of the data has 16,777,217 bytes" in controller.run().reason
    assert controller.heard["Fetch"] == 1


def test_a_shard_whose_bytes_are_wrong_is_given_up_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FIRST_REST", 0.01)
    controller = Scripted(tmp_path)
    controller.blobs[controller.shard.sha256] = bytes(controller.shard.bytes)
    outcome = controller.run(leaves=True)
    assert not outcome.final
    assert f"{controller.shard.name} came 4 times with bytes that are not those of its name" in outcome.reason
    assert controller.left == outcome.reason


@pytest.mark.parametrize("wrong", [0, -1], ids=["bytes", "digests of leaves"])
def test_a_snapshot_whose_bytes_are_wrong_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    monkeypatch.setattr(fetching, "FIRST_REST", 0.01)
    controller = Scripted(tmp_path)
    content = bytearray(controller.blobs[controller.version.digest])
    content[wrong] ^= 1
    controller.blobs[controller.version.digest] = bytes(content)
    outcome = controller.run(leaves=True)
    assert not outcome.final
    assert f"blob {controller.version.digest[:16]} came 4 times with bytes that are not those of its" in outcome.reason
    assert controller.left == outcome.reason


def test_an_error_in_the_training_thread_is_reported_to_both_sides(tmp_path: Path) -> None:
    controller = Scripted(tmp_path)
    rows = np.full((64, CONTEXT), VOCABULARY + 9, np.uint16)  # ids that the vocabulary has not
    shard = controller.add(rows.tobytes())
    meta = msgspec.structs.replace(
        controller.dataset.meta, shards=(msgspec.structs.replace(controller.shard, sha256=shard.digest),)
    )
    size = memory.model_size(model())
    controller.manifest = controller.add(Manifest(model(), controller.add(meta.encode()), size).encode())
    outcome = controller.run(leaves=True)
    assert not outcome.final
    assert f"{tmp_path}/cache/{controller.shard.name} holds token id 309, but the vocabulary has 300" in outcome.reason
    assert controller.left == outcome.reason.replace(f"{tmp_path}/cache/", ""), "the controller is told no paths"


def test_paths_of_a_volunteers_disk_are_not_sent_to_the_controller(tmp_path: Path) -> None:
    controller = Scripted(tmp_path)
    (tmp_path / "cache").write_text("a file where the folder should be")
    outcome = controller.run(leaves=True)
    assert str(tmp_path) in outcome.reason
    assert controller.left == "FileExistsError: [Errno 17] File exists: '<path>'"


def test_a_model_whose_buffers_alone_are_too_large_is_refused(tmp_path: Path) -> None:
    """gpt_neo has a mask of all pairs of positions in each layer: here 256 TiB, of 300,000 parameters."""
    section = {"architecture": "gpt_neo", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}}
    resolved = config.describe({**section, "config": section["config"] | {"max_position_embeddings": 1 << 24}}, 300, 16)
    outcome = Scripted(tmp_path, resolved).run(leaves=True)
    assert "one row of its batches need about 281 TB of memory" in outcome.reason


def test_training_that_diverges_ends_with_what_to_do(tmp_path: Path) -> None:
    controller = Scripted(tmp_path)
    poison = np.full(len(controller.start) // 4, 3e38, np.float32).tobytes()
    blob = controller.add_snapshot(poison)
    update = Update("snapshot", 0, blob, blob.digest)
    controller.task = msgspec.structs.replace(controller.task, news=News((update,)))
    said: list[str] = []
    outcome = controller.run(said.append, leaves=True)
    assert not outcome.final
    assert said[0] == "task 1: 2 of 2 steps skipped, their gradients are not finite"
    assert outcome.reason.startswith("training diverged")
    assert "lower the learning rate" in outcome.reason
    assert controller.left == outcome.reason
    assert controller.heard["Offer"] == 0


def test_a_message_that_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    class Mumbling(Scripted):
        def answer(self, message: Message) -> tuple[Message, bytes | None] | None:
            if isinstance(message, Heartbeat):
                return (Stop("enough") if self.heard["Heartbeat"] > 2 else Assign(self.task)), None
            return super().answer(message)

    controller, said = Mumbling(tmp_path), list[str]()
    many = tuple(RowRange(0, 0, 1) for _ in range(257))  # one more than a task may have
    controller.intervals = 0.1, 10.0
    controller.task = msgspec.structs.replace(controller.task, batches=Batches(many, 4, 0))
    assert controller.run(said.append).reason == "enough"
    assert len(said) == 1
    assert said[0].startswith("a message from the controller is passed over: header: ")


class Finishing(Scripted):
    """It ends the run after the first result."""

    def answer(self, message: Message) -> tuple[Message, bytes | None] | None:
        return (Stop("the run is over"), None) if isinstance(message, Offer) else super().answer(message)


def test_incomplete_files_of_the_cache_are_fetched_again(tmp_path: Path) -> None:
    controller, cache = Finishing(tmp_path), tmp_path / "cache"
    cache.mkdir()
    for info in controller.dataset.files():
        (cache / info.name).write_bytes(controller.blobs[info.sha256][:-1])
    assert controller.run() == Outcome("the run is over", True)
    assert controller.heard["Offer"] == 1
    assert (cache / controller.shard.name).read_bytes() == controller.blobs[controller.shard.sha256]
    assert controller.runtime.machine.over


class Filling(Scripted):
    """It has eight tasks done, each on the rows of another file of half a megabyte: two megabytes in all."""

    num_rows, shard_bytes = 1 << 16, 1 << 19
    means = Means(max_disk="1.5MB")

    def answer(self, message: Message) -> tuple[Message, bytes | None] | None:
        if isinstance(message, RequestTask):
            batches = Batches((RowRange(self.heard["RequestTask"] % 4, 0, 8),), 4, 0)
            return Assign(msgspec.structs.replace(self.task, id=self.heard["RequestTask"], batches=batches)), None
        if isinstance(message, Offer):
            done = self.heard["Offer"] == 8
            return (Stop("the run is over") if done else Ack(message.result.assignment, True)), None
        return super().answer(message)


def test_files_take_no_more_disk_than_is_lent(tmp_path: Path) -> None:
    controller = Filling(tmp_path)
    assert len(controller.dataset.meta.shards) == 4
    assert controller.run() == Outcome("the run is over", True)
    kept = sorted(path.name for path in (tmp_path / "cache").glob("train-*"))
    assert kept == ["train-00000.bin", "train-00003.bin"], "those of the last two tasks, though all were needed twice"
    files = [*(tmp_path / "cache").iterdir(), tmp_path / "moments.safetensors"]
    assert sum(path.stat().st_size for path in files if path.exists()) <= 1.5e6


def test_a_worker_that_comes_back_has_its_moments(tmp_path: Path) -> None:
    """The worker leaves after it has uploaded its task; its next process has not trained yet."""

    class Leading(Scripted):
        def answer(self, message: Message) -> tuple[Message, bytes | None] | None:
            if isinstance(message, Offer):
                return Ack(message.result.assignment, True), None
            if isinstance(message, RequestTask) and self.heard["RequestTask"] > self.tasks:
                self.runtime.leave("enough")
                return None
            return super().answer(message)

    controller, said = Leading(tmp_path), list[str]()

    def say(text: str) -> None:
        if "moments" in text:
            said.append(text)

    controller.tasks = 1
    assert controller.run(say) == Outcome("enough", True, left=True)
    assert controller.heard["Offer"] == 1
    first = controller.runtime.executor.trainer.moments()
    controller.tasks, controller.heard = 0, Counter()
    controller.run(say)
    second = controller.runtime.executor.trainer.moments()
    assert first.keys() == second.keys()
    assert all(bool((first[name] == second[name]).all()) for name in first)
    assert float(second["step"]) == 2.0
    assert said == []
    controller.tasks, controller.keys = 0, Keys.generate()  # another run
    controller.run(say)
    assert controller.runtime.executor.trainer.fresh
    assert len(said) == 1
