"""The nodes of a run, as the controller observes them: membership, speed, link, trust.

Owns membership and leases, failure detection, uploads, speeds, pace, memory limits, data locality, the cost model of
tasks, back-off and probation. May import `state`.
"""
