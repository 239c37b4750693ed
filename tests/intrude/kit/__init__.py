"""The intrusion kit: attempts to get into a run that does not want one, or to be somebody else in it.

For trials against a controller of one's own: `catalog` names the kinds of attempts, `campaign` makes thousands of them,
and whether one succeeded is judged by what its controller let in and put on its ledger (`evidence`).
"""
