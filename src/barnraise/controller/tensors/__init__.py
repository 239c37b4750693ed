"""The controller's tensors and files: parameters, versions, evaluation, and the blobs that workers fetch.

Owns the parameter server, the stages of a version (`stages`), the executor's threads, blobs, snapshots and recovery
from a run directory. May import `state`; the state machine knows it by actions and events alone.
"""
