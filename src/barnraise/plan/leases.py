"""Intervals of heartbeats and leases of a run's nodes."""

from __future__ import annotations

from barnraise.controller.state.settings import FLEET_HEARTBEATS, SIMULATED_HEARTBEATS, LeaseSettings
from barnraise.plan.purpose import SIMULATE
from barnraise.plan.resolve import Plan


def leases(plan: Plan) -> LeaseSettings:
    """Return the run file's settings, within the limits of a controller, or a simulation."""
    controller = plan.run_file.controller
    most = SIMULATED_HEARTBEATS if plan.purpose is SIMULATE else FLEET_HEARTBEATS
    longest = max(controller.lease, controller.longest_lease)
    return LeaseSettings(controller.heartbeat, controller.lease, longest, most)
