"""Compatibility rows about the compression of contributions and versions."""

from __future__ import annotations

from barnraise.compression.catalog import CATALOG as CODECS
from barnraise.plan import suggest
from barnraise.plan.table import Case, Found, Row, adding_to, either, feeds_back, rule_text
from barnraise.training.catalog import CATALOG as OUTER

ROWS: list[Row] = []
_row = adding_to(ROWS)


@_row(
    "sparse contributions under a rule that trims each coordinate",
    "each worker sends other coordinates, so what one sends is an extreme there, and is trimmed; "
    f"{either(suggest.supports_by_version())} keeps the same of all updates of one version, but asynchronous mode "
    "mixes updates of several",
    f"put {either(suggest.mixing())} in front, as in `aggregation.rule: {suggest.chain()}`, or use "
    f"{either(suggest.choosing())}, a dense codec, or exchange.compression: {either(suggest.supports_by_version())} in "
    "synchronous mode",
    warning=True,
)
def _sparse_trimming(case: Case) -> Found:
    codec = CODECS.entry(case.compression.name).declares
    shared = codec.shared_support and not (codec.support_by_version and case.controller.use_async_training)
    if codec.sparse and not shared and case.rule.coordinatewise:
        text = f"{rule_text(case)} trims most of what {case.compression.name} sends"
        yield ("aggregation", "rule"), text


@_row(
    "sparse contributions with outer momentum that amplifies",
    "momentum amplifies what error feedback sends late, and training stalls",
    f"use aggregation.outer_optimizer: {either(suggest.plain_outers())}, or a dense codec",
    warning=True,
)
def _sparse_momentum(case: Case) -> Found:
    codec = CODECS.entry(case.compression.name).declares
    if codec.sparse and OUTER.entry(case.outer.name).declares.amplifies:
        yield ("aggregation", "outer_optimizer"), f"{case.outer.name} on {case.compression.name} stalls"


@_row(
    "a sparse codec without error feedback",
    "values that it leaves out are lost permanently",
    "leave error_feedback on",
    warning=True,
)
def _sparse_forgetting(case: Case) -> Found:
    codec = CODECS.entry(case.compression.name).declares
    if codec.sparse and not feeds_back(case.run_file):
        yield ("exchange", "error_feedback"), f"is off with {case.compression.name}"


@_row(
    "versions written in a codec that decodes differently on different machines",
    "every replica must get the same bits, or it fetches a snapshot each time",
    f"use downlink_compression: {either(suggest.portable())}",
)
def _downlink_bits(case: Case) -> Found:
    if not CODECS.entry(case.downlink.name).declares.portable:
        yield ("exchange", "downlink_compression"), f"is {case.downlink.name}"


@_row(
    "fragments without all of a worker's own progress",
    "progress outside the current fragment waits in the residual, and a worker trains on it only when it keeps it",
    "set error_feedback: true and error_feedback_keep: 1.0, or fragments: 1",
)
def _fragments_kept(case: Case) -> Found:
    exchange = case.exchange
    if exchange.fragments > 1 and not (feeds_back(case.run_file) and exchange.error_feedback_keep == 1.0):
        yield (
            ("exchange", "fragments"),
            f"is {exchange.fragments}, but error_feedback_keep {exchange.error_feedback_keep:g}",
        )


@_row(
    "fragments with an outer optimizer that counts versions",
    "each version moves one fragment alone, so its count is wrong for all of them",
    f"use aggregation.outer_optimizer: {either(suggest.countless_outers())}, in a mode that it suits, or "
    "exchange.fragments: 1",
)
def _fragments_outer(case: Case) -> Found:
    if case.exchange.fragments > 1 and OUTER.entry(case.outer.name).declares.counts_versions:
        yield ("aggregation", "outer_optimizer"), f"is {case.outer.name} with {case.exchange.fragments} fragments"


@_row(
    "progress kept from a residual that decays, or is not there",
    "a worker must keep exactly the progress that it sends later",
    "set error_feedback_decay: 1.0 and error_feedback: true, or error_feedback_keep: 0",
)
def _kept_decay(case: Case) -> Found:
    exchange = case.exchange
    if exchange.error_feedback_keep and (exchange.error_feedback_decay < 1.0 or not feeds_back(case.run_file)):
        yield ("exchange", "error_feedback_keep"), f"is {exchange.error_feedback_keep:g}"


@_row(
    "momentum of the fleet with fragments",
    "a version tells the movement of one fragment, and all others would lose their momentum",
    "set training.version_momentum: 0, or exchange.fragments: 1",
)
def _fragments_momentum(case: Case) -> Found:
    if case.exchange.fragments > 1 and case.training.version_momentum:
        text = f"is {case.training.version_momentum:g} with {case.exchange.fragments} fragments"
        yield ("training", "version_momentum"), text
