"""Metrics of a model on held-out data besides the loss, and the text that it generates."""
