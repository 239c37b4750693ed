"""The links that a run file asks for, one a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from barnraise.config.document import Document
from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.config.trial_sections import NetworkSection, WorkerSection
from barnraise.core.errors import InputError
from barnraise.transport.links.link import BrownOuts, Link
from barnraise.transport.links.presets import LINKS, MBIT, NO_LINK, parse


def link_of(run_file: RunFile, index: int, worker: WorkerSection | None = None) -> Link:
    """Return the link of worker number `index`; InputError when the run file's text for it is malformed."""
    if worker is not None and worker.link is not None:
        return parse(worker.link, index)
    network = run_file.network
    rate = None if network.rate_mbps is None else network.rate_mbps * MBIT
    dark = BrownOuts(network.brownout_every, network.brownout_seconds or 0.0) if network.brownout_every else None
    found = parse(network.profile, index).changed(
        up=rate,
        down=rate,
        delay=_seconds(network.delay_ms),
        jitter=_seconds(network.jitter_ms),
        loss=network.loss,
        duplication=network.duplication,
        brown_outs=dark,
    )
    return _with_small(found, network)


def controller_link(run_file: RunFile) -> Link | None:
    """Return the controller's own link in a lab; None when it is unlimited."""
    text = run_file.network.controller_link
    return parse(text) if text is not None else None


def live_link(run_file: RunFile, index: int, worker: WorkerSection | None = None) -> Link | None:
    """Return the same for a live run: None where there is nothing to emulate."""
    found = link_of(run_file, index, worker)
    return None if found == LINKS[NO_LINK] else found


def with_network(document: Document, text: str | None) -> Document:
    """Return `document` with a network of the profile `text` (--network), if given, and no other parameters."""
    if text is None:
        return document
    parse(text)  # its message is better than one that names a key not in the file
    return replace(document, content={**document.content, "network": {"profile": text}})


def with_workers(document: Document, count: int | None) -> Document:
    """Return `document` with `count` workers: its first ones, and more equal ones where it has fewer."""
    listed = document.content.get("workers")
    if count is None or not (listed is None or isinstance(listed, list)):
        return document
    workers: list[Any] = list(listed or [])[:count]
    workers += [{"name": f"worker-{number}"} for number in range(len(workers) + 1, count + 1)]
    return replace(document, content={**document.content, "workers": workers})


def link_problems(run_file: RunFile) -> Iterator[Problem]:
    """Yield the problems of a run file's links."""
    network = run_file.network
    joining = [(("faults", at, "join", "link"), fault.join) for at, fault in enumerate(run_file.faults)]
    workers = [(("workers", at, "link"), worker) for at, worker in enumerate(run_file.workers)]
    for path, text in [
        (("network", "profile"), network.profile),
        *([(("network", "controller_link"), network.controller_link)] if network.controller_link else []),
        *((path, worker.link) for path, worker in [*workers, *joining] if worker is not None and worker.link),
    ]:
        try:
            parse(text)
        except InputError as error:
            yield Problem(path, str(error))
    every, lasting = network.brownout_every, network.brownout_seconds
    if (every is None) != (lasting is None):
        given, missing = (
            ("brownout_every", "brownout_seconds") if lasting is None else ("brownout_seconds", "brownout_every")
        )
        yield Problem(("network", given), f"says half of a brown-out: give {missing} too")
    elif every is not None and lasting is not None and lasting > MOST_DARK * every:
        limit = f"{MOST_DARK:.0%} of brownout_every ({every:g} s)"
        yield Problem(("network", "brownout_seconds"), f"is {lasting:g}, but at most {limit} may be dark")


MOST_DARK = 0.9


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _with_small(found: Link, network: NetworkSection) -> Link:
    figures = {
        "delay": _seconds(network.small_delay_ms),
        "jitter": _seconds(network.small_jitter_ms),
        "loss": network.small_loss,
    }
    other = {name: value for name, value in figures.items() if value is not None}
    if not other:
        return found
    return replace(found, small_up=replace(found.up, **other), small_down=replace(found.down, **other))
