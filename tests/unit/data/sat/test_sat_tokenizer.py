from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from barnraise.core.errors import DataError, OptionError
from barnraise.data.sat.dimacs import Formula
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


def test_save_and_load(tmp_path: Path) -> None:
    tokenizer = SatTokenizer(4, 3)
    tokenizer.save(tmp_path / "tokenizer.json")
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        assert SatTokenizer.load(path).ids == tokenizer.ids


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
