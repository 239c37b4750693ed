"""Slow links: their parameters, presets by name, and a connection that behaves like one."""
