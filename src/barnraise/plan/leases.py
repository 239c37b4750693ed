"""How often the nodes of a run are heard, and when one that is silent is gone."""

from __future__ import annotations

from barnraise.controller.state.settings import FLEET_HEARTBEATS, SIMULATED_HEARTBEATS, LeaseSettings
from barnraise.plan.purpose import SIMULATE
from barnraise.plan.resolve import Plan


def leases(plan: Plan) -> LeaseSettings:
    """What the run file says, within what a controller, or a simulation, can hear."""
    controller = plan.run_file.controller
    most = SIMULATED_HEARTBEATS if plan.purpose is SIMULATE else FLEET_HEARTBEATS
    longest = max(controller.lease, controller.longest_lease)
    return LeaseSettings(controller.heartbeat, controller.lease, longest, most)
