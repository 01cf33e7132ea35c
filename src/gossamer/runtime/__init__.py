"""Runtimes: what drives the agents' generators, and what a run leaves behind.

The code is organised as follows:
    settings     the typed settings of a run
    deployment   data, assignment and topology joined
    simulation   hosts in one process
    training     a simulated run: evaluations, stops, resumption
    messages     what a step sends, by phase and link
    directory    the run directory on disk
"""
