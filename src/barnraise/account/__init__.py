"""The read model: the state of a run from its ledger, as values, sentences and pictures.

Imports no torch.
"""

from .account import Account, read

__all__ = ["Account", "read"]
