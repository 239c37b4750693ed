"""The work of a run: its tasks, their assignment to nodes, and the judgement of results.

Owns dispatch, the kinds of tasks, admission and inspection of results, audits, scores, sanctions, speculation and the
shard cursors. May import `state`, `fleet`, `sites` and `versions`.
"""
