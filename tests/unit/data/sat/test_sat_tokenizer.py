from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from barnraise.core.errors import DataError, OptionError, UnknownNameError
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.styles import PROMPTS, STYLES
from barnraise.data.sat.tokenizer import MAX_VOCAB, SatTokenizer, vocab_size

FORMULA = Formula(3, ((1, -2), (3,), (-1, 2, -3)))


def test_the_vocabulary_is_every_clause_and_every_word() -> None:
    tokenizer = SatTokenizer(3, 3)
    assert tokenizer.vocab_size == len(tokenizer.tokens) == len(set(tokenizer.tokens)) == 3 + 8 + 6 + 12 + 8
    assert SatTokenizer(20, 3).vocab_size == 9931
    assert vocab_size(20, 3) == 9931


def test_the_ids_are_fixed() -> None:
    """Old datasets and models must stay readable."""
    tokenizer = SatTokenizer(2, 2)
    words = ["<pad>", "<bos>", "<eos>", ":", "D", "U", "B", "SAT", "UNSAT", "T", "F"]
    assert tokenizer.tokens == [*words, "1", "-1", "2", "-2", "1,2", "1,-2", "-1,2", "-1,-2"]
    assert tokenizer.prompt(Formula(2, ((2, -1), ())), slots=3) == [1, 17, 10, 9, 3]


def test_the_ids_of_trails_are_fixed() -> None:
    """Old datasets and models must stay readable."""
    tokenizer = SatTokenizer(2, 2, style="trail_steps")
    words = ["<pad>", "<bos>", "<eos>", ":", "F", "SAT", "UNSAT", "|", "D1", "D-1", "D2", "D-2"]
    assert tokenizer.tokens == [*words, "1", "-1", "2", "-2", "1,2", "1,-2", "-1,2", "-1,-2"]
    tokenizer = SatTokenizer(2, 2, style="trail", prompt="literals")
    words = ["<pad>", "<bos>", "<eos>", ":", "F", "SAT", "UNSAT", "D1", "D-1", "D2", "D-2", "1", "-1", "2", "-2"]
    assert tokenizer.tokens == [*words, "(1", "(-1", "(2", "(-2", ",1", ",-1", ",2", ",-2"]


def test_prompts_of_literals_hold_clauses_of_any_length() -> None:
    tokenizer = SatTokenizer(4, 1, style="trail", prompt="literals")
    formula = Formula(4, ((-4, 1, 3, -2), (2,), (), (-3, 2)))
    ids = tokenizer.example(formula, ["2", "D1", "F"])
    assert tokenizer.decode(ids) == "(1 ,-2 ,3 ,-4 (2 F (2 ,-3 : 2 D1 F"
    assert tokenizer.formula(ids).clauses == ((1, -2, 3, -4), (2,), (), (2, -3))
    assert tokenizer.trace(ids) == ["2", "D1", "F"]
    assert tokenizer.longest == 4
    for text in (",1 :", "(1 2 :", "(1 D1 :"):
        with pytest.raises(DataError, match="is no literal of a clause"):
            tokenizer.formula(tokenizer.encode(text))


def test_vocabularies_of_literals_grow_with_the_variables_alone() -> None:
    assert SatTokenizer(1000, 900, style="trail", prompt="literals").vocab_size == 3 + 4 + 8 * 1000
    assert SatTokenizer(20, 3, style="terse", prompt="literals").vocab_size == 3 + 8 + 6 * 20


def test_styles_and_prompts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OptionError, match="'restated' have clauses as tokens"):
        SatTokenizer(3, 2, style="restated", prompt="literals")
    with pytest.raises(UnknownNameError, match="did you mean 'trail'"):
        SatTokenizer(3, 2, style="trial")
    with pytest.raises(UnknownNameError, match="did you mean 'literals'"):
        SatTokenizer(3, 2, prompt="literal")


def test_prompts_are_padded_and_examples_whole() -> None:
    tokenizer = SatTokenizer(3, 3)
    ids = tokenizer.example(FORMULA, ["U", "3"], slots=4)
    assert tokenizer.decode(ids) == "1,-2 3 -1,2,-3 T : U 3"
    assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id)
    assert tokenizer.formula(ids) == FORMULA
    assert tokenizer.trace([*ids, tokenizer.pad_id]) == ["U", "3"]


def test_completions_keep_what_should_not_be_there() -> None:
    tokenizer = SatTokenizer(2, 1)
    assert tokenizer.completion([0, 7, 99, -1, 2, 8]) == ["<pad>", "SAT", "<99>", "<-1>"]


def test_tokens_outside_the_vocabulary_are_refused() -> None:
    tokenizer = SatTokenizer(3, 2)
    for formula in (FORMULA, Formula(4, ((4,),)), Formula(3, ((1, -1),))):
        with pytest.raises(DataError, match="is no token of 3 variables"):
            tokenizer.prompt(formula)
    with pytest.raises(DataError, match="outside the vocabulary"):
        tokenizer.decode([tokenizer.vocab_size])
    with pytest.raises(DataError, match="no example"):
        tokenizer.formula(tokenizer.encode("1 2"))
    with pytest.raises(DataError, match="'SAT' is no clause"):
        tokenizer.formula(tokenizer.encode("1 SAT :"))


@pytest.mark.parametrize(("num_variables", "longest"), [(0, 0), (3, 4), (3, 0), (100, 3), (10**9, 10**8), (40, 40)])
def test_vocabularies_that_are_impossible_or_too_large(num_variables: int, longest: int) -> None:
    with pytest.raises(OptionError):
        SatTokenizer(num_variables, longest)
    assert vocab_size(num_variables, longest) <= MAX_VOCAB + 1


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("style", STYLES)
def test_save_and_load(tmp_path: Path, style: str, prompt: str) -> None:
    """A loaded tokenizer has the style and the prompt of its words; terse and restated traces have the same."""
    if (style, prompt) == ("restated", "literals"):
        return
    tokenizer = SatTokenizer(4, 3, style=style, prompt=prompt)
    assert tokenizer.vocab_size == vocab_size(4, 3, style, prompt) == len(set(tokenizer.tokens))
    tokenizer.save(tmp_path / "tokenizer.json")
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        loaded = SatTokenizer.load(path)
        assert (loaded.ids, loaded.longest) == (tokenizer.ids, tokenizer.longest)
        assert loaded.prompt_style == prompt
        assert loaded.style == ("restated" if (style, prompt) == ("terse", "clauses") else style)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(DataError, match="no SAT tokenizer there"):
        SatTokenizer.load(path)
    vocab = SatTokenizer(3, 2).ids
    damaged = [vocab | {"<bos>": 2}, {k: v for k, v in vocab.items() if k != "F"}, vocab | {"9" * 30: 1}, {"1": 0}]
    for content in damaged:
        path.write_text(json.dumps({"model": {"vocab": content}}))
        with pytest.raises(DataError, match="is not a SAT tokenizer"):
            SatTokenizer.load(path)


def test_transformers_loads_the_same_tokenizer(tmp_path: Path) -> None:
    tokenizer = SatTokenizer(3, 3)
    tokenizer.to_hugging_face(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer.example(FORMULA, ["U", "3", "T", "SAT"], slots=4)
    assert theirs("<bos> 1,-2 3 -1,2,-3 T : U 3 T SAT <eos>")["input_ids"] == ids
    assert theirs.decode(ids, skip_special_tokens=True) == tokenizer.decode(ids)
    assert (theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id) == (0, 1, 2)
    assert len(theirs) == tokenizer.vocab_size


@pytest.mark.parametrize(
    ("style", "prompt", "text"),
    [
        ("trail", "clauses", "1,-2 3 -1,2,-3 : 3 D1 D-2 F -1 SAT"),
        ("trail_steps", "clauses", "1,-2 3 -1,2,-3 : 3 | 3 D1 | SAT"),
        ("trail", "literals", "(1 ,-2 (3 (-1 ,2 ,-3 : 3 D1 D-2 F -1 SAT"),
        ("terse", "literals", "(1 ,-2 (3 (-1 ,2 ,-3 : U 3 D 1 SAT"),
    ],
)
def test_transformers_loads_the_tokens_of_every_style(tmp_path: Path, style: str, prompt: str, text: str) -> None:
    tokenizer = SatTokenizer(3, 3, style=style, prompt=prompt)
    tokenizer.to_hugging_face(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer.encode(text)
    assert tokenizer.formula(ids) == FORMULA
    assert theirs(text)["input_ids"] == ids
    assert theirs.decode(ids) == text
    assert len(theirs) == tokenizer.vocab_size
