"""Attacks that use the protocol's own messages: lists that a host chooses, and blobs that a role fetches."""
