"""The batches and losses of problems, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.problems import Line
from tests.rows import text_rows
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, T5Config, T5ForConditionalGeneration

from barnraise.core.errors import DataError
from barnraise.core.types import Batches
from barnraise.data.batches import Batch, batches
from barnraise.data.columns import RowColumn, filled
from barnraise.data.meta import Format
from barnraise.data.packing import COLUMNS
from barnraise.training.local import LocalTrainer, held_out_loss, row_losses
from barnraise.training.masked_lm import MaskedLM
from barnraise.training.problem import Problem
from barnraise.training.seq2seq import Seq2Seq

SGD: dict[str, Any] = {"optimizer": "sgd", "options": {"momentum": 0.0, "weight_decay": 0.0}, "gradient_clip": None}
TEXT = Format(kind="text", tokenizer="bytes", context=32, vocab_size=60, pad_id=59)


def line_rows(count: int) -> Any:
    train, _ = Line().rows(3)
    return filled({name: array[:count] for name, array in train.items()}, Line.columns, 1, 1, "uint16")


@pytest.mark.parametrize("at_once", [None, 3])
def test_the_steps_are_those_of_a_plain_loop(at_once: int | None) -> None:
    problem, rows = Line(), line_rows(40)
    torch.manual_seed(0)
    module, plain = problem.build(), problem.build()
    plain.load_state_dict(module.state_dict())
    trainer = LocalTrainer(module, **SGD, problem=problem, tokens_at_once=at_once)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for batch in batches([rows], Batches((), 8, 1), problem.form, problem.batch):
        loss = nn.functional.mse_loss(plain(torch.from_numpy(batch["x"]))[:, 0], torch.from_numpy(batch["y"]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert trainer.step(batch, 0.1) == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(trainer.flat.vector, torch.nn.utils.parameters_to_vector(plain.parameters()))


def test_rows_are_weighed_as_the_whole() -> None:
    problem, module = Line(), nn.Linear(3, 1)
    batch = problem.batch(line_rows(9), problem.form, np.random.default_rng(0))
    each = row_losses(problem, module, [batch])
    assert each.shape == (9,)
    assert held_out_loss(problem, module, [batch]) == pytest.approx(float(each.mean()), rel=1e-5)


def test_a_measurement_draws_the_same_random_numbers_each_time() -> None:
    class Noisy(Line):
        def loss(self, module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
            total, weight = super().loss(module, batch)
            return total * torch.rand(()), weight

    module, batch = nn.Linear(3, 1), Line().batch(line_rows(9), Line().form, np.random.default_rng(0))
    state = torch.get_rng_state()
    one, again = (held_out_loss(Noisy(), module, [batch]) for _ in range(2))
    assert one == again
    assert torch.equal(torch.get_rng_state(), state), "a measurement must leave the dice as they were"


def test_an_exception_in_the_loss_is_named() -> None:
    trainer = LocalTrainer(nn.Linear(3, 1), **SGD, problem=Line(fault="raises"))
    batch = {"x": np.full((2, 3), 0.995, np.float32), "y": np.zeros(2, np.float32)}
    assert trainer.step(batch, 0.1) is None
    assert trainer.raised == "the problem Line raised ValueError: a row is odd"
    assert trainer.skipped == 1


def test_a_loss_that_is_nan_takes_no_step() -> None:
    trainer = LocalTrainer(nn.Linear(3, 1), **SGD, problem=Line(fault="nan"))
    before = trainer.flat.vector.clone()
    batch = {"x": np.full((2, 3), 0.995, np.float32), "y": np.zeros(2, np.float32)}
    assert trainer.step(batch, 0.1) is None
    assert torch.equal(trainer.flat.vector, before)


def test_steps_on_which_the_loss_fails_count_as_done() -> None:
    """Else the rest of the task would be given out again, and fail again."""
    good, bad = np.zeros((2, 3), np.float32), np.full((2, 3), 0.995, np.float32)
    several = [{"x": x, "y": np.zeros(2, np.float32)} for x in (good, bad, good)]
    for fault in ("nan", "raises"):
        trainer = LocalTrainer(nn.Linear(3, 1), **SGD, problem=Line(fault=fault))
        steps, loss = trainer.run(iter(several), 0.1)
        assert (steps, trainer.skipped) == (3, 1)
        assert np.isfinite(loss)
        assert trainer.run(iter(several[1:2]), 0.1)[0] == 0
        assert trainer.raised.startswith("the problem Line ")


def test_a_loss_that_is_nan_in_all_steps_is_named() -> None:
    bad = {"x": np.full((2, 3), 0.995, np.float32), "y": np.zeros(2, np.float32)}
    trainer = LocalTrainer(nn.Linear(3, 1), **SGD, problem=Line(fault="nan"))
    assert trainer.run(iter([bad, bad]), 0.1)[0] == 0
    assert trainer.raised == "the problem Line has a loss or a gradient that is not finite in all steps of a task"
    good = bad | {"x": np.zeros((2, 3), np.float32)}
    assert trainer.run(iter([bad, good]), 0.1)[0] == 2
    assert trainer.raised == ""


def test_a_loss_that_does_not_depend_on_the_parameters_is_named() -> None:
    class Constant(Line):
        def loss(self, module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
            return batch["x"].sum(), 1

    trainer = LocalTrainer(nn.Linear(3, 1), **SGD, problem=Constant())
    assert trainer.step({"x": np.ones((1, 3), np.float32)}, 0.1) is None
    assert "Constant raised RuntimeError: element 0 of tensors does not require grad" in trainer.raised


@pytest.mark.parametrize(
    ("problem", "form", "said"),
    [
        (Line(), TEXT, r"have the columns tokens \(token \['length'\]\), but Line needs x \(float32 \[3\]\), y"),
        (Seq2Seq(), TEXT, "needs source and target"),
        (MaskedLM(), Line().form, "MaskedLM needs tokens"),
        (MaskedLM(), Format(kind="text", tokenizer="x", context=8, vocab_size=9), "neither a mask nor padding"),
    ],
    ids=["own rows", "pairs", "tokens", "no mask"],
)
def test_rows_of_another_form_are_refused(problem: Problem, form: Format, said: str) -> None:
    with pytest.raises(DataError, match=said):
        problem.require(form)


def test_integers_and_floats_have_the_types_of_losses() -> None:
    columns = (
        RowColumn(name="a", dtype="uint8", shape=(2,)),
        RowColumn(name="b", dtype="float16"),
        RowColumn(name="c", dtype="bool"),
    )
    rows = filled({"a": np.ones((3, 2), int), "b": np.ones(3), "c": np.ones(3, bool)}, columns, 1, 1, "uint16")
    batch = Problem().batch(rows, TEXT, np.random.default_rng(0))
    assert {name: str(array.dtype) for name, array in batch.items()} == {"a": "int64", "b": "float32", "c": "float32"}


# Masked tokens


def masked(seed: int, share: float = 0.15) -> tuple[np.ndarray[Any, Any], list[Batch]]:
    ids = np.random.default_rng(0).integers(0, 50, (64, 32))
    return ids, list(batches([text_rows(ids)], Batches((), 64, seed), TEXT, MaskedLM(share).batch))


def test_masks_follow_from_the_task_and_differ_from_task_to_task() -> None:
    (_, [one]), (_, [again]), (_, [other]) = masked(1), masked(1), masked(2)
    assert all((one[name] == again[name]).all() for name in one)
    assert (one["labels"] != other["labels"]).any()


def test_a_share_of_the_tokens_is_hidden_replaced_or_kept() -> None:
    _, [batch] = masked(1, share=0.5)
    ids, labels = batch["input_ids"], batch["labels"]
    chosen = labels >= 0
    assert chosen.mean() == pytest.approx(0.5, abs=0.05)
    assert (ids[chosen] == TEXT.pad_id).mean() == pytest.approx(0.8, abs=0.06)
    assert (ids[chosen] == labels[chosen]).mean() == pytest.approx(0.1, abs=0.05)
    assert batch["attention_mask"].all()
    assert (ids[~chosen] < 50).all()


def test_the_loss_of_masked_tokens_is_that_of_transformers() -> None:
    config = BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    module = BertForMaskedLM(config).eval()
    _, [batch] = masked(1)
    arrays = {name: torch.from_numpy(array) for name, array in batch.items()}
    total, weight = MaskedLM().loss(module, arrays)
    torch.testing.assert_close(total / weight, module(**arrays).loss)
    each = MaskedLM().row_losses(module, arrays)
    counts = (arrays["labels"] >= 0).sum(1)
    torch.testing.assert_close((each * counts).sum() / counts.sum(), total / weight)


# Texts from texts

PAIRS = Format(
    kind="rows", tokenizer="x", context=1, vocab_size=40, pad_id=0, eos_id=1,
    columns=(RowColumn(name="source", dtype="token", shape=(10,)), RowColumn(name="target", dtype="token", shape=(6,))),
)  # fmt: skip


def pairs() -> Batch:
    chance = np.random.default_rng(0)
    source, target = chance.integers(2, 40, (5, 10)), chance.integers(2, 40, (5, 6))
    source[:, 8:], target[1, 3:] = 0, 0
    rows = filled({"source": source, "target": target}, PAIRS.fields, 1, 40, "uint16")
    return Seq2Seq().batch(rows, PAIRS, chance)


def test_padding_is_cut_and_no_target() -> None:
    batch = pairs()
    assert batch["input_ids"].shape == (5, 8)
    assert batch["decoder_input_ids"][:, 0].tolist() == [0] * 5
    assert (batch["labels"][1, 3:] == -100).all()


def test_a_prompt_is_the_source_of_its_completion() -> None:
    """Prompts of 2, 3 and 1 tokens with completions of 2, 1 and 3, whose last is the end of text."""
    form = Format(
        kind="instruct", tokenizer="x", context=6, vocab_size=40, pad_id=0, eos_id=1,
        columns=COLUMNS,
    )  # fmt: skip
    tokens = np.array([[5, 6, 7, 1, 0, 0], [8, 9, 10, 1, 0, 0], [11, 12, 13, 1, 0, 0]])
    trained = np.array([[0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 0, 0], [0, 1, 1, 1, 0, 0]], bool)
    Seq2Seq().require(form)
    rows = filled({"tokens": tokens, "trained": trained}, form.fields, 6, 40, "uint16")
    batch = Seq2Seq().batch(rows, form, np.random.default_rng(0))
    assert batch["input_ids"].tolist() == [[5, 6, 1, 0], [8, 9, 10, 1], [11, 1, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]]
    assert batch["labels"].tolist() == [[7, 1, -100], [1, -100, -100], [12, 13, 1]]
    assert batch["decoder_input_ids"].tolist() == [[0, 7, 1], [0, 1, 0], [0, 12, 13]]
    assert Seq2Seq().positions(batch) == 7


def test_the_loss_of_a_target_is_that_of_transformers() -> None:
    config = T5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
    module = T5ForConditionalGeneration(config).eval()
    arrays = {name: torch.from_numpy(array) for name, array in pairs().items()}
    total, weight = Seq2Seq().loss(module, arrays)
    told = {name: array for name, array in arrays.items() if name != "decoder_input_ids"}
    torch.testing.assert_close(total / weight, module(**told).loss)
    each, counts = Seq2Seq().row_losses(module, arrays), (arrays["labels"] >= 0).sum(1)
    torch.testing.assert_close((each * counts).sum() / counts.sum(), total / weight)
