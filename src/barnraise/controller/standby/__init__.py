"""A standby's own side: it copies a run from its controller, and decides when to take over.

Imports no other package of the controller.
"""
