"""The controller's shell: frames, timers and finished work become events; actions become frames, commits and work.

Owns the asyncio server, enrolment, rate limits, group commit, observers, and the controller's side of a standby. May
import every other package of the controller but `standby`.
"""
