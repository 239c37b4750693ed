"""The work of a run: which tasks there are, which node gets which, and how results are judged.

Owns dispatch, the kinds of tasks, admission and inspection of results, audits, scores, speculation and the shard
cursors. May import `state`, `fleet` and `versions`.
"""
