"""Properties of labels, against the plainest implementation of each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barnraise.data.shards import IGNORED, Format, Targets, labels


@given(st.lists(st.lists(st.integers(0, 5), min_size=12, max_size=12), min_size=1, max_size=4))
def test_labels_agree_with_reading_each_row_token_by_token(rows: list[list[int]]) -> None:
    form = Format(kind="sat", tokenizer="sat", context=12, vocab_size=6, pad_id=0, targets=Targets(after=1, until=2))
    expected = []
    for row in rows:
        learning, wanted = False, []
        for token in row:
            wanted.append(token if learning and token != 0 else IGNORED)
            learning = token == 1 or (learning and token != 2)
        expected.append(wanted)
    assert labels(np.array(rows, dtype=np.uint16), form).tolist() == expected
