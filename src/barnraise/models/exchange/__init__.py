"""The exchange of a run: the vector that travels, its kinds, and how it enters a module.

`layout`, `record` and `catalog` are without torch; `module` imports it.
"""
