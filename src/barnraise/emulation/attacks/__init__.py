"""Attacks, for trials of what withstands them: nodes that keep to the protocol and hand in what they should not.

One class (`executor.Attacker`) acts in live workers and in simulated ones: it is another executor of their tasks. The
kinds are in `catalog`, and the files beside it; each is its few methods that differ from an honest worker's (`base`).
What an attacker knows of others is its `board.Scene`.
"""
