"""A worker that comes back with its replica: to an honest controller, to one with other versions, to a hostile one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest

from barnraise.core.digests import LEAF_BYTES
from barnraise.core.types import News, Update
from barnraise.models import memory
from barnraise.wire.messages import Assign, Chunk, Fetch, Hello, Message, Offer, RequestTask, Stop, Welcome

from .test_hostile_controller import Scripted, model


class Coming(Scripted):
    """It names its newest version, gives a task at it as a snapshot, and stops at the first result.

    `fetched` are the bytes of each blob that it sent.
    """

    run_name = "run"

    def __init__(self, folder: Path) -> None:
        described = model(hidden_size=320)
        super().__init__(folder, described)
        self.number, self.fetched, self.said = 1, Counter[str](), list[str]()
        size = memory.model_size(described)
        self.parameters = np.random.default_rng(1).normal(size=size).astype(np.float32) / 100
        self.publish()

    def publish(self) -> None:
        self.version = self.add_snapshot(self.parameters.tobytes())
        assert self.version.num_bytes > 3 * LEAF_BYTES

    def answer(self, message: Message) -> tuple[Message, bytes | None] | None:
        answer = super().answer(message)
        match message:
            case Hello():
                named = Welcome("run", "a", message.greeting, self.settings, self.manifest, *self.intervals)
                named = msgspec.structs.replace(
                    named, run=self.run_name, version=self.number, digest=self.version.digest
                )
                return named, None
            case RequestTask():
                newest = Update("snapshot", self.number, self.version, self.version.digest)
                news = News(() if message.have == self.number else (newest,))
                task = msgspec.structs.replace(self.task, id=self.heard["RequestTask"], base=self.number, news=news)
                return Assign(task), None
            case Offer():
                return Stop("that is enough", final=False), None
            case Fetch() if answer is not None and isinstance(answer[0], Chunk):
                self.fetched[message.digest] += len(answer[1] or b"")
        return answer

    def visit(self) -> int:
        """Have a worker come and do a task: the bytes of the newest version that it fetched."""
        self.fetched.clear()
        self.heard.clear()
        self.said.clear()
        outcome = self.run(self.said.append)
        assert outcome.reason == "that is enough"
        return self.fetched[self.version.digest]

    @property
    def file(self) -> Path:
        (found,) = (self.folder / "replica").iterdir()
        return found


@pytest.fixture
def controller(tmp_path: Path) -> Coming:
    controller = Coming(tmp_path)
    assert controller.visit() > controller.version.num_bytes
    assert controller.file.name == f"{controller.version.digest}.replica"
    return controller


def test_a_worker_that_comes_back_to_the_same_version_fetches_nothing(controller: Coming) -> None:
    assert controller.visit() == 0
    assert controller.said == ["version 1 of the model is on this disk: only what differs is fetched"]


def test_a_worker_that_comes_back_to_a_snapshot_fetches_the_leaves_that_differ(controller: Coming) -> None:
    controller.number = 7
    controller.parameters[LEAF_BYTES // 4 + 3] += 1.0
    controller.publish()
    listed = controller.visit() - LEAF_BYTES
    assert 0 < listed < 4096
    assert controller.visit() == 0, "it is that version now"


def test_a_damaged_file_costs_its_wrong_leaf_and_one_line(controller: Coming) -> None:
    content = bytearray(controller.file.read_bytes())
    content[-5] ^= 1
    controller.file.write_bytes(content)
    assert 0 < controller.visit() < LEAF_BYTES + 4096
    assert len(controller.said) == 1
    assert "its bytes have another digest than its name" in controller.said[0]
    assert controller.visit() == 0


def test_a_controller_with_another_history_is_not_given_work_on_the_wrong_parameters(controller: Coming) -> None:
    """It has a version of the same number, which other parameters have."""
    controller.parameters += 1.0
    controller.publish()
    assert controller.visit() > controller.version.num_bytes
    assert "the controller names another digest for version 1" in controller.said[0]


def test_another_run_in_the_same_folder_begins_anew(controller: Coming) -> None:
    controller.run_name = "../../another"
    assert controller.visit() > controller.version.num_bytes
    assert any("it is of another run or model" in text for text in controller.said)
    assert {path.parent.name for path in controller.folder.rglob("*.replica")} == {"replica"}


@pytest.mark.campaign
def test_a_controller_that_lies_of_leaves_gets_no_wrong_bytes_used(controller: Coming) -> None:
    """It lists the leaves that the worker has under the digest of a version that has others."""
    old = controller.blobs[controller.version.digest]
    controller.number = 2
    controller.parameters += 1.0
    controller.publish()
    listed = old[len(controller.parameters) * 4 :]
    honest = controller.blobs[controller.version.digest]
    controller.blobs[controller.version.digest] = honest[: -len(listed)] + listed
    controller.said.clear()
    outcome = controller.run(controller.said.append)
    assert not outcome.final
    assert "came 4 times with bytes that are not those of its name" in outcome.reason
    assert controller.heard["Offer"] == 1, "that of the first visit"
