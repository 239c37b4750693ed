"""Nodes that train are told of new versions, each of which crosses their link once."""

from __future__ import annotations

import pytest

from barnraise.controller.state.actions import Send
from barnraise.controller.versions.publishing import Publishing
from barnraise.wire.messages import Assign, Newer

from ....state_machine.engine import Engine, contribution, engine_settings


@pytest.fixture
def engine() -> Engine:
    """Return two nodes with a task each."""
    engine = Engine(engine_settings(buffer_size=1))
    for node in ("a", "b"):
        engine.hello(node)
        engine.next(node)
    return engine


def make_version(engine: Engine, node: str) -> list[Newer | Assign]:
    """Let `node` submit its task, which becomes a version; return the news for the other node."""
    task = next(iter(engine.held[node].values()))
    engine.offer(node, contribution(task))
    said = []
    while engine.jobs:
        job = engine.jobs[0]
        engine.jobs.remove(job)
        said += [a.message for a in engine.handle(engine.result(job)) if isinstance(a, Send) and a.node != node]
    engine.next(node)
    return [message for message in said if isinstance(message, Newer | Assign)]


def test_a_subscriber_is_notified_once_of_the_next_version(engine: Engine) -> None:
    engine.watch("b", 0)
    (news,) = make_version(engine, "a")
    assert isinstance(news, Newer)
    assert [update.version for update in news.news.updates] == [1]
    assert make_version(engine, "a") == []


def test_a_late_subscriber_is_notified_at_once_of_all_missing_versions(engine: Engine) -> None:
    make_version(engine, "a")
    make_version(engine, "a")
    engine.watch("b", 0)
    assert engine.watching == set()


def test_news_say_what_of_ones_own_they_hold(engine: Engine) -> None:
    own = next(iter(engine.held["a"]))
    engine.next("a")  # its next task
    engine.watch("a", 0)
    task = engine.held["a"][own]
    engine.offer("a", contribution(task))
    said = []
    while engine.jobs:
        job = engine.jobs[0]
        engine.jobs.remove(job)
        said += [a.message for a in engine.handle(engine.result(job)) if isinstance(a, Send)]
    (news,) = [message for message in said if isinstance(message, Newer)]
    assert (news.news.merged, news.news.share) == (own, 0.5)


def test_a_task_does_not_bring_what_news_have_brought(engine: Engine) -> None:
    """Its request and the news crossed: it names a version that the node has outgrown."""
    engine.watch("b", 0)
    make_version(engine, "a")
    engine.next("b", have=0)
    task = list(engine.held["b"].values())[-1]
    assert (task.base, task.news.updates) == (1, ())


def test_news_do_not_bring_what_a_task_has_brought(engine: Engine) -> None:
    make_version(engine, "a")
    engine.machine.parts[Publishing].watching["b"] = 0  # as if its Watch had come before the version
    engine.watching.add("b")
    engine.next("b", have=0)
    task = list(engine.held["b"].values())[-1]
    assert [update.version for update in task.news.updates] == [1]
    (news,) = make_version(engine, "a")
    assert isinstance(news, Newer)
    assert [update.version for update in news.news.updates] == [2]


def test_a_greeting_forgets_what_was_told(engine: Engine) -> None:
    engine.watch("b", 0)
    make_version(engine, "a")
    engine.hello("b", have=0)
    engine.next("b", have=0)
    task = list(engine.held["b"].values())[-1]
    assert [update.version for update in task.news.updates] == [1]
