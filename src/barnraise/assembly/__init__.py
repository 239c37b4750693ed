"""Construction and execution of a plan: a controller, workers, a simulation, for commands and Python programs.

Submodules are imported when first used, so that a bad run file is refused before torch is loaded.
"""
