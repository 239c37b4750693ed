"""Attacks on the privacy of a run: its model, data and codec as the setting of trials."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from barnraise.assembly.parts import model_config
from barnraise.assembly.preparing import make_dataset
from barnraise.core.errors import InputError
from barnraise.data.batches import Rows, batch_of
from barnraise.data.shards import Dataset
from barnraise.ledger.run_directory import RunDirectory
from barnraise.models.problems import CAUSAL, entry_of
from barnraise.plan import resolve
from barnraise.privacy.attacks.catalog import USUAL_PROTECTIONS
from barnraise.privacy.attacks.protections import EncodedUpdate, Protection
from barnraise.privacy.attacks.runner import AttackResult, make_protection, play
from barnraise.privacy.attacks.setting import AttackSetting, LocalTraining

if TYPE_CHECKING:
    from torch import Tensor

    from barnraise.config.schema import RunFile
    from barnraise.plan.resolve import Plan

MOST_ROWS, MOST_LENGTH, MOST_STEPS, MOST_BATCH = 4096, 16, 4, 2
"""The part of a run that a trial uses: rows, tokens of each, local steps and rows of a step.

Fewer rows in an update make an attack easier, so the figures are of the adversary's better case.
"""

RUN_CODEC = "run's codec"


@dataclass(frozen=True)
class AttackedRun:
    """The subject of attacks: a model's config, token rows, the local training and the codec of a run.

    `start` are the model's parameters where the run file names a checkpoint, else None.
    """

    config: Mapping[str, Any]
    rows: Rows
    training: LocalTraining
    codec: Protection
    start: Tensor | None
    seed: int

    def setting(self, protection: Protection) -> AttackSetting:
        """Return the setting of trials under a protection."""
        return AttackSetting(self.config, self.rows, self.training, protection, start=self.start, seed=self.seed)

    def protections(self, named: Sequence[str]) -> list[Protection]:
        """Return the protections of these names, or the usual ones and the run's own codec."""
        if named:
            return [make_protection(text) for text in named]
        return [*map(make_protection, USUAL_PROTECTIONS), self.codec]

    @property
    def told(self) -> str:
        """Return the part of the run that is attacked, in one sentence."""
        training, (rows, length) = self.training, self.rows.shape
        return (
            f"each update is of {training.steps} local steps of {training.optimizer} on {training.batch_size} rows of "
            f"{length} tokens, of {rows} rows of the run"
        )


def attacked_run(plan: Plan, data: Path) -> AttackedRun:
    """Return the subject of attacks on a plan, with the dataset in the folder `data`.

    InputError when the run is of no kind that the attacks know.
    """
    run_file, dataset = plan.run_file, Dataset.open(data)
    config = model_config(plan, dataset)
    if run_file.training.adapter is not None:
        raise InputError(
            "attacks read the embedding's and the attentions' updates, but this run exchanges adapters alone; "
            "leave training.adapter out of a copy of the run file, and attack that"
        )
    if entry_of(config).name != CAUSAL:
        raise InputError(
            f"attacks know causal language models, but this run's problem is '{entry_of(config).name}'; "
            "attack a run of a causal language model"
        )
    codec = EncodedUpdate(plan.compression.name, **plan.compression.options)
    codec.name = f"{RUN_CODEC}: {plan.compression.name}"
    return AttackedRun(
        config, _rows(dataset), _training(run_file, plan), codec, _start(plan, config), run_file.run.seed
    )


def attack_run(
    subject: Path | RunFile,
    attacks: Sequence[str],
    protections: Sequence[str],
    *,
    trials: int = 100,
    tell: Callable[[str], None] = lambda text: None,
    each: Callable[[AttackResult], None] = lambda result: None,
) -> list[AttackResult]:
    """Play attacks on a run file, or on the resolved one and the data of a run directory."""
    with tempfile.TemporaryDirectory(prefix="barnraise-attack-") as made:
        if isinstance(subject, Path):
            run = RunDirectory.open(subject)
            from barnraise.config import load

            plan, data = resolve(load(run.run_file)), run.data
        else:
            plan, data = resolve(subject), Path(made, "data")
            make_dataset(plan, data)
        attacked = attacked_run(plan, data)
        chosen = attacked.protections(protections)
        tell(attacked.told)
        return play(attacked.setting, attacks, chosen, trials=trials, seed=attacked.seed, each=each)


def _rows(dataset: Dataset) -> Rows:
    """Return the beginnings of training rows that hold no padding: int64 [n, at most `MOST_LENGTH`]."""
    found, meta = list[Rows](), dataset.meta
    for shard, info in enumerate(meta.shards):
        if (missing := MOST_ROWS - sum(map(len, found))) <= 0:
            break
        rows = batch_of(dataset.rows(shard, 0, min(info.rows, missing)), meta)["input_ids"]
        rows = rows[:, : min(MOST_LENGTH, meta.lengths[0])]
        found.append(rows if meta.pad_id is None else rows[(rows != meta.pad_id).all(1)])
    return np.concatenate(found) if found else np.zeros((0, MOST_LENGTH), np.int64)


def _training(run_file: RunFile, plan: Plan) -> LocalTraining:
    training = run_file.training
    batch = training.batch_size if isinstance(training.batch_size, int) else MOST_BATCH
    return LocalTraining(
        plan.inner.name,
        dict(plan.inner.options),
        training.learning_rate,
        min(MOST_STEPS, training.local_steps),
        min(MOST_BATCH, batch),
        training.gradient_clip,
    )


def _start(plan: Plan, config: dict[str, Any]) -> Tensor | None:
    section = plan.run_file.model.model_dump(exclude_none=True)
    if "path" not in section:
        return None
    from barnraise.models.build import create
    from barnraise.models.flat import FlatParameters

    return FlatParameters(create(section, config)).vector.clone()
