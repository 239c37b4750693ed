"""Attacks on what an update shows: of one worker, of a group's sum, or of several messages of one site."""
