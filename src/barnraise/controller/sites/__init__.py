"""Rows that stay with their nodes: which nodes have some, which of them train, and the lanes of their tasks.

May import `state` and `fleet`.
"""
