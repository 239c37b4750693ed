"""Figures of a run for experiment trackers, from its ledger: while it works, or afterwards."""
