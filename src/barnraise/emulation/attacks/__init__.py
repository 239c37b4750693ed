"""Attacks, for trials of defences: nodes that keep to the protocol and submit harmful contributions.

One class (`executor.Attacker`) acts in live workers and in simulated ones: it is another executor of their tasks. The
kinds are in `catalog`, and the files beside it; each is its few methods that differ from an honest worker's (`base`).
An attacker's knowledge of other nodes is its `board.Scene`.
"""
