"""The controller of a run: a pure state machine (`machine`) and the shell that carries out what it decides.

Its sub-packages, lowest first; each may import those before it, and import-linter holds that:

    state      the folded ledger: what a run's decisions say, events, actions, settings, and what every part is
    fleet      what is observed of nodes: membership, leases, speeds, links, memory, sanctions
    versions   when a buffer becomes a version, its publication, its evaluation, how a run ends
    work       what there is to do: dispatch, the kinds of tasks, inspection of results, speculation
    machine    (a module) the parts of these packages as one state machine
    tensors    parameter server, stages of a version, executor, recovery; imports `state` alone
    shell      asyncio: server, enrolment, rate limits, group commit, the controller's side of a standby
    standby    a standby's own side: it follows a controller and decides whether to take over; imports none of these
"""
