"""Attacks on privacy: what an adversary learns of a victim's rows from what it sees of a run.

An attack plays trials. Each gives the attack's score beside that of a control, which sees nothing of the victim. A
*protection* decides what the adversary sees. `catalog` lists both by name, without torch; `runner` plays them.
"""
