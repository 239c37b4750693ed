"""Versions of the model: closing of the buffer, publication, evaluation, and the end of a run.

Owns the open buffer and its deadline, the loss gate, publication, evaluation and the end of the run. May import `state`
and `fleet`.
"""
