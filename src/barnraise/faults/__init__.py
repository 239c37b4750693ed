"""Fault injection: the schedule of a fault plan, and the targets that its faults are played on."""
