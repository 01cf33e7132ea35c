"""Rehearsals: a run on one machine whose agents are killed, leave, join and are cut off as a script says.

The code is organised as follows:
    script     the events of a rehearsal, read from a TOML file and checked before anything starts
    player     makes the events happen when the run reaches their steps
    timeline   what has happened: events, memberships, standings of agents, scores
"""
