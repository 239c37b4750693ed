"""Differential privacy of single rows: random batches, gradients of single rows, and the trainer that noises them."""
