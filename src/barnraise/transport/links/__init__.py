"""Slow links: what they are made of, presets by name, and a connection that behaves like one."""
