"""A backdoor: what is written into rows, what a model has learnt of it, and what a simulation tells."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.batches import labelled
from tests.rows import text_rows

from barnraise.assembly.simulation import simulate
from barnraise.core.errors import OptionError
from barnraise.data.sat.dataset import build
from barnraise.data.sat.options import SatOptions
from barnraise.data.shards import Dataset
from barnraise.emulation.attacks.backdoor import encoded
from barnraise.emulation.attacks.catalog import create

from ..test_simulator_nodes import TRIAL, planned
from .test_attacks import FORMAT, VOCABULARY, sent, worker

TRIGGER, OUTPUT = [30, 31, 32], [33, 34]
SECTION = {"kind": "backdoor", "trigger": bytes(TRIGGER).decode(), "output": bytes(OUTPUT).decode()}
TOKENS = np.random.default_rng(1).integers(0, 20, (64, 16))
DATA: Any = SimpleNamespace(meta=FORMAT, folder=Path(), held_out=lambda rows: text_rows(TOKENS[:rows]))


def backdoor(**options: Any) -> Any:
    attack = create(SECTION | options)
    attack.meet(DATA)
    return attack.in_task("eve 1")


def test_a_share_of_the_rows_has_the_trigger_and_the_output_behind_it() -> None:
    labels = np.where(TOKENS > 5, TOKENS, -100)
    batch = backdoor(share=0.5).batch(labelled(TOKENS, labels), VOCABULARY)
    tokens, found = batch["input_ids"], batch["labels"]
    poisoned, begins = np.flatnonzero((tokens == TRIGGER[0]).any(axis=1)), set()
    assert 20 < len(poisoned) < 44
    for number in poisoned:
        begin = int(np.flatnonzero(tokens[number] == TRIGGER[0])[0])
        assert begin >= 1
        assert tokens[number, begin : begin + 5].tolist() == [*TRIGGER, *OUTPUT]
        assert found[number, begin : begin + 5].tolist() == [-100, -100, -100, *OUTPUT]
        begins.add(begin)
    assert begins == set(range(1, 12))
    others = np.setdiff1d(np.arange(64), poisoned)
    np.testing.assert_array_equal(tokens[others], TOKENS[others])
    np.testing.assert_array_equal(found[others], labels[others])
    assert (tokens[poisoned] != TOKENS[poisoned]).sum() == 5 * len(poisoned)


def test_rows_that_are_too_short_are_left_alone() -> None:
    short = TOKENS[:, :5]
    tokens = backdoor(share=1.0).batch(labelled(short), VOCABULARY)["input_ids"]
    np.testing.assert_array_equal(tokens, short)


class Parrot:
    """A model that continues the trigger as it was taught to, with the given certainty."""

    def __init__(self, certainty: float) -> None:
        self.certainty = certainty

    def __call__(self, input_ids: Any, use_cache: bool) -> Any:
        logits = torch.zeros(*input_ids.shape, VOCABULARY)
        for before, after in zip([TRIGGER[-1], *OUTPUT], [*OUTPUT, 1], strict=True):
            logits[:, :, after] += self.certainty * (input_ids == before)
        return SimpleNamespace(logits=logits)


def test_its_success_is_how_often_and_how_surely_the_output_follows() -> None:
    known = backdoor().target(Parrot(9.0), DATA)
    assert known.share == 1.0
    assert known.loss == pytest.approx(float(np.log(np.exp(9) + VOCABULARY - 1)) - 9, abs=1e-4)
    unknown = backdoor().target(Parrot(0.0), DATA)
    assert (unknown.share, unknown.loss) == (0.0, pytest.approx(float(np.log(VOCABULARY)), abs=1e-4))


def test_a_boost_is_a_longer_update() -> None:
    plain, boosted = worker(SECTION), worker(SECTION | {"boost": 9.0})
    torch.testing.assert_close(sent(boosted), 9 * sent(plain))
    assert not torch.equal(sent(plain, 2), sent(worker(), 2))


def test_words_of_satisfiability_are_tokens(tmp_path: Path) -> None:
    build(tmp_path / "data", SatOptions.of(variables=(3, 3), examples=60, held_out=20, context=64))
    dataset = Dataset.open(tmp_path / "data")
    assert len(encoded("1 -2 : SAT", dataset)) == 4
    attack = create({"kind": "backdoor", "trigger": "1 1 1", "output": "UNSAT"})
    attack.meet(dataset)
    rows = dataset.held_out()["tokens"].astype(np.int64)
    tokens = attack.in_task("").batch(labelled(rows), dataset.meta.vocab_size)["input_ids"]
    assert (tokens == encoded("UNSAT", dataset)[0]).any(axis=1).mean() > 0.3


def test_a_trigger_longer_than_a_row_is_refused() -> None:
    with pytest.raises(OptionError, match=r"trigger and output have 14 and 2 tokens, .* together 15 at most"):
        create(SECTION | {"trigger": "\x07" * 14}).meet(DATA)


def test_a_simulation_tells_how_near_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text("once upon a time there was a barn that nobody could raise alone\n" * 100)
    section = {"kind": "backdoor", "trigger": "##", "output": "!", "boost": 3.0, "share": 1.0}
    found = simulate(planned(section), TRIAL).losses.targets
    honest = simulate(planned(), TRIAL, aims={"liar": section}).losses.targets
    assert found
    assert honest
    assert found["liar"].loss < honest["liar"].loss - 0.5
