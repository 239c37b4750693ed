"""The read model: what happened in a run, from its ledger, in values, sentences and pictures. Imports no torch."""

from .account import Account, read

__all__ = ["Account", "read"]
