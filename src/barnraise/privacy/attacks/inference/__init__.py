"""Attacks that infer a fact about rows: that one of them was trained on, or a property that most of them have."""
