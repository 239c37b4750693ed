"""The model card of an exported model, from its run's ledger and files; torch-free."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnraise.account.account import Account
from barnraise.account.markdown import fenced, markdown, table
from barnraise.core.units import bytes_text, count_text, duration_text
from barnraise.data.meta import META, Meta
from barnraise.ledger.checkpoints import describe
from barnraise.wire.manifest import Manifest

CARD = "README.md"
MARK = "<!-- written by barnraise export; without this line it is not written again -->"

MOST_NODES = 200
"""Rows of the table of contributors; the ledger has them all."""


@dataclass(frozen=True)
class CardOf:
    """The subject of a card: the version that was exported, and the way to use the files.

    `base` is the folder of the model that the run continued, if any. `use` is code in `language`. `release` is the
    number of the barnraise that writes it.
    """

    release: str
    version: int
    num_parameters: int
    base: Path | None
    use: str
    language: str = "python"


def card(account: Account, manifest: Manifest, meta: Meta, of: CardOf) -> str:
    """Return the text of README.md."""
    return "\n".join(_lines(account, manifest, meta, of)) + "\n"


def may_write(path: Path) -> bool:
    """Return whether a card can be written there: there is none, or one that barnraise wrote."""
    try:
        return MARK in path.read_text("utf-8", "replace")
    except OSError:
        return not path.exists()


def licence_of(base: Path) -> str:
    """Return the licence that a model's folder names, by its README or its LICENSE file; "" where it names none."""
    try:
        head = (base / CARD).read_text("utf-8", "replace")[:20_000]
        front = re.match(r"---\n(.*?\n)---", head, re.DOTALL)
        if front and (named := re.search(r"^license:[ \t]*([\w.+-]{1,60})", front[1], re.MULTILINE)):
            return named[1]
    except OSError:
        pass
    for name in ("LICENSE", "LICENSE.txt", "LICENSE.md"):
        if (base / name).is_file():
            return "other"
    return ""


def _lines(account: Account, manifest: Manifest, meta: Meta, of: CardOf) -> Iterator[str]:
    licence = licence_of(of.base) if of.base is not None else ""
    yield from _front(licence, of.base)
    yield MARK
    yield ""
    yield f"# {markdown(account.run.path.name)}"
    yield ""
    yield (
        f"A {manifest.model['model_type']} with {of.num_parameters:,} parameters, of which {manifest.trained:,} were "
        f"trained, exported at version {of.version} by barnraise {of.release}."
    )
    yield from _section("Use")
    yield from fenced(of.use, of.language)
    yield from _section("Training")
    yield from table(("", ""), _training(account, manifest, of, licence))
    yield from _section("Data")
    yield from table(("", ""), _data(account, meta))
    yield from _section("Contributors")
    yield from _contributors(account)
    yield from _section("Verification")
    yield (
        "The run directory holds the ledger with every decision, and the data. This command checks it, and says "
        "whether the model in it is that of a version on the ledger:"
    )
    yield ""
    yield from fenced(f"barnraise verify {account.run.path.name}", "bash")


def _front(licence: str, base: Path | None) -> Iterator[str]:
    yield "---"
    yield "library_name: transformers"
    yield "pipeline_tag: text-generation"
    yield "tags: [barnraise]"
    if licence:
        yield f"license: {licence}"
    if base is not None:
        yield f"base_model: {_plain(base.name)}"
    yield "---"


def _section(title: str) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""


def _training(account: Account, manifest: Manifest, of: CardOf, licence: str) -> Iterator[tuple[str, str]]:
    totals = account.totals
    yield "tokens", f"{totals.tokens:,}"
    yield "versions", f"{max(0, totals.version):,}"
    yield "time", duration_text(totals.seconds)
    yield "trained", _trained(manifest)
    for point, when in ((account.losses[:1], "first"), (account.losses[-1:], "last")):
        for measured in point:
            yield f"{when} held-out loss", f"{measured.loss:.4f} nats a token at version {measured.version}"
    if of.base is not None:
        yield "base", of.base.name
        yield "licence of the base", licence or "its folder names none: ask its authors"
    for part in manifest.exchange.frozen:
        yield "file of the base", f"{bytes_text(part.blob.num_bytes)}, SHA-256 {part.blob.digest}"


def _trained(manifest: Manifest) -> str:
    options: dict[str, Any] = dict(manifest.exchange.options)
    told = ", ".join(f"{key} {value}" for key, value in sorted(options.items()) if value not in ("", None))
    return manifest.exchange.kind + (f" ({told})" if told else "")


def _data(account: Account, meta: Meta) -> Iterator[tuple[str, str]]:
    yield "kind", meta.kind
    lengths = ", ".join(map(str, meta.lengths))
    yield "rows", f"{sum(info.rows for info in meta.shards):,} of {lengths} tokens, {meta.held_out.rows:,} held out"
    yield "description", f"SHA-256 {describe(account.run.data / META).sha256}; it names each file's digest"
    for info in meta.files:
        yield info.name, f"SHA-256 {info.sha256}"


def _contributors(account: Account) -> Iterator[str]:
    nodes = sorted((node for node in account.nodes if node.outcomes.accepted), key=lambda node: -node.tokens)
    rows = [(node.node, f"{node.outcomes.accepted:,}", f"{node.tokens:,}") for node in nodes[:MOST_NODES]]
    yield f"{count_text(len(nodes), 'node')} contributed, by the names that they had in the run."
    if rows:
        yield ""
        yield from table(("node", "contributions", "tokens"), rows, right=1)
    if len(nodes) > MOST_NODES:
        yield ""
        yield f"{len(nodes) - MOST_NODES:,} more are on the ledger."


def _plain(name: str) -> str:
    """Return a name as a plain YAML word."""
    return re.sub(r"[^\w./-]", "_", name)[:100]
