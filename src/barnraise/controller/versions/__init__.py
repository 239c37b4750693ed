"""Versions of the model: when the buffer closes, how a version is published and evaluated, how a run ends.

Owns the open buffer and its deadline, the loss gate, publication, evaluation and the end of the run. May import `state`
and `fleet`.
"""
