"""Compatibility rows about training less than the whole model."""

from __future__ import annotations

from barnraise.plan.table import Case, Found, Row, adding_to

ROWS: list[Row] = []
_row = adding_to(ROWS)


@_row(
    "adapters and trained layers in one run",
    "what travels is one or the other",
    "leave one of them out",
)
def _adapters_and_layers(case: Case) -> Found:
    if case.training.adapter is not None and case.training.train is not None:
        yield ("training", "train"), "is given, and training.adapter too"


@_row(
    "a part of the model that is empty",
    "nothing would be trained",
    "give training.train.layers (for instance [-1], the last), or embeddings: true",
)
def _nothing_to_train(case: Case) -> Found:
    part = case.training.train
    if part is not None and not part.layers and not part.embeddings:
        yield ("training", "train"), "names no layers, and embeddings is false"


@_row(
    "adapters beside a model that nobody has trained",
    "adapters correct a model that is good already; the random rest of the model stays random",
    "give model.path, or leave training.adapter out",
    warning=True,
)
def _adapters_from_scratch(case: Case) -> Found:
    if case.training.adapter is not None and case.run_file.model.path is None:
        yield ("training", "adapter"), "is given, but the model has no path: it is made from scratch"
