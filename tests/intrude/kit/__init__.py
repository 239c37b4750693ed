"""The intrusion kit: attempts to get into a run without permission, or to act as another member in it.

The kit is for trials against a controller of one's own. `catalog` names the kinds of attempts, and `campaign` makes
thousands of them. `evidence` judges whether an attempt succeeded, by the messages that the controller accepted and by
its ledger.
"""
