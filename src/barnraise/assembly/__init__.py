"""Builds what a plan describes and sees it through: a controller, workers, a simulation. The commands call it, and so
may anyone. Submodules are imported when first used, so that a bad run file is refused before torch is loaded."""
