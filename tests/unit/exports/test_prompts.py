"""Prompts of the round trip: pieces of held-out rows, or of a sample text where the host has no rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from barnraise.data import shards, site_rows, text, tokenizers
from barnraise.data.shards import Dataset
from barnraise.exports.prompts import prompts_of
from barnraise.exports.round_trip import PROMPTS

CONTEXT = 32


def test_prompts_are_pieces_of_held_out_rows(tmp_path: Path) -> None:
    coder = tokenizers.load("bytes")
    rows = np.array([coder.encode("one barn, two beams, three ropes" * 2)[:CONTEXT] for _ in range(4)], np.uint32)
    shards.write(tmp_path, text.form_of(coder, (CONTEXT,)), [rows], rows, files=coder.files(), seed=0)
    prompts = prompts_of(Dataset.open(tmp_path))
    assert prompts
    assert all(coder.decode(prompt.ids) in "one barn, two beams, three ropes" * 2 for prompt in prompts)


def test_prompts_of_a_run_whose_rows_stay_at_sites_are_pieces_of_a_sample_text(tmp_path: Path) -> None:
    site_rows.build_form(tmp_path, [], tokenizer="bytes", context=CONTEXT, seed=0)
    dataset = Dataset.open(tmp_path)
    assert len(dataset.held_out()) == 0
    prompts, coder = prompts_of(dataset), tokenizers.load("bytes")
    assert len(prompts) == PROMPTS
    assert len({tuple(prompt.ids) for prompt in prompts}) == PROMPTS
    assert all(prompt.ids == coder.encode(coder.decode(prompt.ids)) for prompt in prompts)
