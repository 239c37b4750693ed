from __future__ import annotations

from barnraise.data.sat import styles


def test_prompts_are_padded_where_clauses_have_places() -> None:
    padded = {
        (style, prompt) for style in styles.STYLES for prompt in styles.PROMPTS if styles.is_padded(style, prompt)
    }
    assert padded == {("terse", "clauses"), ("restated", "clauses")}
