"""Metrics on held-out questions, against the same computed with transformers question by question."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs
from tests.chats import chat_tokenizer

from barnraise.core.errors import DataError
from barnraise.data import chats, tokenizers
from barnraise.data.chats import ChatForm
from barnraise.data.examples import Example, Origin
from barnraise.data.questions import QUESTIONS, Question, Questions, encoded, questions_in, questions_of
from barnraise.data.sat.dataset import build
from barnraise.data.sat.options import SatOptions
from barnraise.data.shards import Dataset
from barnraise.data.tokenizers import ByteTokenizer
from barnraise.training.causal_lm import CausalLM
from barnraise.training.metrics import measures
from barnraise.training.metrics.generation import Stopped, drawn, greedy
from barnraise.training.metrics.measures import HeldOutData, choice_accuracy, exact_match

FORM = ChatForm("instruct", ByteTokenizer(), None, "completion", 48)


@dataclass(frozen=True)
class Sum:
    """A question in text: what comes after a number, with choices of several lengths."""

    prompt: str
    choices: tuple[str, ...]
    right: int

    def example(self, place: int) -> Example:
        texts = [f" {text}" for text in self.choices]
        return Example(
            source=Origin("sums.jsonl", place),
            prompt=self.prompt,
            completion=texts[self.right],
            choices=texts,
            right=self.right,
        )


def sums(count: int) -> list[Sum]:
    rng = random.Random(0)
    found = []
    for _ in range(count):
        first, spaces = rng.randint(0, 9), rng.randint(0, 9)
        choices = [str(first + 1), f"{first}0", "seven"]
        rng.shuffle(choices)
        found.append(Sum(f"{'x' * spaces}{first}+1?", tuple(choices), choices.index(str(first + 1))))
    return found


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Dataset, list[Sum]]:
    """A model that has learnt some of the answers, and a dataset whose held-out examples are questions."""
    from transformers import AutoModelForCausalLM, GPT2Config

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=258, n_positions=48, n_embd=32, n_layer=2, n_head=2, bos_token_id=256, eos_token_id=256,
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    asked = sums(60)
    folder = tmp_path_factory.mktemp("questions") / "data"
    examples = [question.example(place) for place, question in enumerate(asked)]
    questions = questions_of(examples, FORM, len(examples))
    chats.build(folder, FORM, examples, examples, beside={QUESTIONS: encoded(questions)})
    dataset, problem = Dataset.open(folder), CausalLM()
    batch = problem.batch(dataset.held_out(), dataset.meta, np.random.default_rng(0))
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(45):
        loss, weight = problem.loss(model, tensors)
        (loss / weight).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval(), dataset, asked


def held_of(dataset: Dataset, rows: int = 1000) -> HeldOutData:
    return HeldOutData(dataset, CausalLM(), rows, questions_in(dataset))


def test_exact_match_is_that_of_generate(taught: tuple[Any, Dataset, list[Sum]]) -> None:
    model, dataset, asked = taught
    right = []
    for question in asked:
        ids = torch.tensor([list(question.prompt.encode())])
        written = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_length=48, do_sample=False, eos_token_id=256, pad_token_id=257
        )[0, ids.shape[1] :].tolist()
        text = bytes(token for token in written if token < 256).decode(errors="replace")
        right.append(text.strip() == question.choices[question.right])
    assert 0 < sum(right) < len(right), "the model has learnt some of the answers"
    assert exact_match(model, held_of(dataset)) == {"exact_match": sum(right) / len(right)}
    few = exact_match(model, held_of(dataset, rows=7))
    assert few == {"exact_match": sum(right[:7]) / 7}


def test_choice_accuracy_is_that_of_log_likelihoods_a_character(taught: tuple[Any, Dataset, list[Sum]]) -> None:
    model, dataset, asked = taught
    right, unnormalised = 0, 0
    for question in asked:
        scores = []
        for choice in question.choices:
            prompt, whole = question.prompt.encode(), f"{question.prompt} {choice}".encode()
            with torch.no_grad():
                logits = model(torch.tensor([list(whole)])).logits[0].log_softmax(-1)
            scores.append(sum(float(logits[at - 1, whole[at]]) for at in range(len(prompt), len(whole))))
        each = [score / len(choice) for score, choice in zip(scores, question.choices, strict=True)]
        right += each.index(max(each)) == question.right
        unnormalised += scores.index(max(scores)) == question.right
    assert 0 < right < len(asked)
    assert right != unnormalised, "the length of the choices matters here"
    assert choice_accuracy(model, held_of(dataset)) == {"choice_accuracy": right / len(asked)}


def test_a_row_is_completed_as_it_is_alone(taught: tuple[Any, Dataset, list[Sum]]) -> None:
    model, _, asked = taught
    prompts = [list(question.prompt.encode()) for question in asked[:20]]
    together = greedy(model, prompts, context=30, stops=())
    assert together == [greedy(model, [prompt], context=30, stops=())[0] for prompt in prompts]
    assert [len(completion) for completion in together] == [30 - len(prompt) for prompt in prompts]
    ended = [completion[: completion.index(256) + 1] for completion in together if 256 in completion]
    assert len(ended) == 20
    assert greedy(model, prompts, context=30, stops=(256,)) == ended
    most = [number % 3 for number in range(20)]
    cut = greedy(model, prompts, context=30, stops=(), most=most)
    assert cut == [completion[:count] for completion, count in zip(together, most, strict=True)]


def test_rows_that_are_over_change_nothing_for_the_others(taught: tuple[Any, Dataset, list[Sum]]) -> None:
    """Rows end at lengths of their own, so that the batch gets smaller again and again."""
    model, _, asked = taught
    prompts = [list(question.prompt.encode()) for question in asked[:16]]
    most = [1 + 3 * (number % 5) for number in range(16)]
    together = greedy(model, prompts, context=48, stops=(), most=most)
    alone = [
        greedy(model, [prompt], context=48, stops=(), most=[count])[0]
        for prompt, count in zip(prompts, most, strict=True)
    ]
    assert together == alone
    assert [len(row) for row in together] == most


def test_drawn_completions_follow_the_seed_and_the_temperature(taught: tuple[Any, Dataset, list[Sum]]) -> None:
    model, _, asked = taught
    prompts = [list(question.prompt.encode()) for question in asked[:20]]

    def draw(temperature: float, seed: int) -> list[list[int]]:
        return drawn(model, prompts, context=30, stops=(256,), temperature=temperature, seed=seed)

    assert draw(1.0, 1) == draw(1.0, 1) != draw(1.0, 2)
    assert draw(0.001, 1) == draw(0.001, 2) == greedy(model, prompts, context=30, stops=(256,))


def test_tokens_are_drawn_as_often_as_the_model_expects_them(taught: tuple[Any, Dataset, list[Sum]]) -> None:
    model, _, asked = taught
    prompt = list(asked[0].prompt.encode())
    with torch.no_grad():
        shares = (model(torch.tensor([prompt])).logits[0, -1] / 2.0).softmax(-1)
    rows = drawn(model, [prompt] * 2000, context=30, stops=(), temperature=2.0, seed=0, most=[1] * 2000)
    likeliest = int(shares.argmax())
    seen = sum(row == [likeliest] for row in rows) / 2000
    assert abs(seen - float(shares[likeliest])) < 0.05


def test_formulas_are_measured_by_held_out_set(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, GPT2Config

    search = {"name": "five", "formulas": 5, "variables": (5, 5), "backtracking": {"at_least": 1}}
    values = {"clause_lengths": (3, 3), "clause_ratio": 4.0, "style": "trail", "context": 128}
    options = SatOptions.of(**values, examples=10, held_out=5, held_out_sets=[search])
    build(tmp_path / "data", options)
    dataset = Dataset.open(tmp_path / "data")
    config = GPT2Config(vocab_size=dataset.meta.vocab_size, n_positions=128, n_embd=8, n_layer=1, n_head=1)
    held = replace(held_of(dataset), questions=None)
    figures = measures.formulas(AutoModelForCausalLM.from_config(config).eval(), held)
    sets = {name.rpartition("/")[0] for name in figures}
    assert {"held out", "five"} <= sets <= {"held out", "five", "needs search"}
    assert {name.rpartition("/")[2] for name in figures} == {"verdicts", "whole traces"}
    assert all(0 <= share <= 1 for share in figures.values())


def test_generation_ends_when_it_is_stopped(taught: tuple[Any, Dataset, list[Sum]]) -> None:
    model, dataset, _ = taught
    with pytest.raises(Stopped):
        exact_match(model, replace(held_of(dataset), stopped=lambda: True))
    with pytest.raises(Stopped):
        choice_accuracy(model, replace(held_of(dataset), stopped=lambda: True))


class Drawn(CausalLM):
    """A problem whose own figure draws random numbers."""

    def evaluate(self, module: torch.nn.Module, batches: Iterable[Mapping[str, torch.Tensor]]) -> dict[str, float]:
        return {"drawn": sum(float(torch.rand(())) for _ in batches)}


def test_a_problem_draws_the_same_numbers_at_each_measurement(taught: tuple[Any, Dataset, list[Sum]]) -> None:
    module, dataset, _ = taught
    state = torch.get_rng_state()
    first, again = (measures.problem(module, HeldOutData(dataset, Drawn(), 20)) for _ in range(2))
    assert first == again
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(Stopped):
        measures.problem(module, HeldOutData(dataset, Drawn(), 20, stopped=lambda: True))


def test_metrics_without_what_they_need_name_it(taught: tuple[Any, Dataset, list[Sum]]) -> None:
    model, dataset, _ = taught
    held = held_of(dataset)
    assert held.questions is not None
    plain = tuple(Question(one.prompt, one.answer) for one in held.questions.held_out)
    without = Questions(held.questions.stops, plain)
    with pytest.raises(DataError, match="no held-out example has choices"):
        choice_accuracy(model, replace(held, questions=without))
    with pytest.raises(DataError, match="made without questions"):
        exact_match(model, replace(held, questions=None))


def test_a_conversation_asks_for_its_last_answer(tmp_path: Path) -> None:
    chat_tokenizer("byte-level", tmp_path / "coder")
    coder = tokenizers.load(tmp_path / "coder")
    form = ChatForm("chat", coder, chats.template_of(coder, "it"), "assistant", 128)
    messages = [
        {"role": "user", "content": "Which beam?"},
        {"role": "assistant", "content": "The first."},
        {"role": "user", "content": "And then?"},
        {"role": "assistant", "content": "The second."},
        {"role": "user", "content": "Thanks"},
    ]
    found = questions_of([Example(source=Origin("a", 1), messages=messages)], form, 5, ["Who built it?"])
    (question,) = found.held_out
    assert coder.shown(question.prompt).endswith("user\nAnd then?<|im_end|>\n<|im_start|>assistant\n")
    assert coder.shown(question.prompt).startswith("<|im_start|>user\nWhich beam?<|im_end|>")
    assert coder.decode(question.answer) == "The second."
    assert coder.shown(found.asked[0]) == "<|im_start|>user\nWho built it?<|im_end|>\n<|im_start|>assistant\n"
    assert set(found.stops) >= {coder.special_tokens()["<|im_end|>"], coder.eos_id}


def test_examples_that_no_row_holds_are_no_questions() -> None:
    long = with_prompt(sums(1)[0].example(0), "y" * 60)
    short = sums(1)[0].example(1)
    assert len(questions_of([long, short], FORM, 5).held_out) == 1
    with pytest.raises(DataError, match="longer than a row of 48 tokens"):
        questions_of([long], FORM, 5)
    with pytest.raises(DataError, match=r"prompt 2 of evaluation\.prompts has 60 tokens"):
        questions_of([], FORM, 0, ["fine", "y" * 60])


def with_prompt(example: Example, prompt: str) -> Example:
    return structs.replace(example, prompt=prompt)


def test_a_damaged_file_of_questions_is_named(taught: tuple[Any, Dataset, list[Sum]], tmp_path: Path) -> None:
    _, dataset, _ = taught
    for content in (b"{", encoded(Questions((256,), asked=((999_999,),)))):
        other = Dataset(tmp_path, dataset.meta)
        (tmp_path / QUESTIONS).write_bytes(content)
        with pytest.raises(DataError, match=r"questions\.json (cannot be read|holds token 999999)"):
            questions_in(other)
