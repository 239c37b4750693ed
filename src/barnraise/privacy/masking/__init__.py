"""The package masks updates so that a host reads only sums of them (secure aggregation).

The modules take and return values, bytes and arrays, and leave sockets, clocks and the ledger to their callers.
"""
