"""The controller's state: the decisions on a run's ledger, folded, and how each decision changes it.

Owns events, actions, settings, the folded state with its invariants, its form in a checkpoint, and the base classes of
parts and kinds of tasks. Imports no other package of the controller.
"""
