"""Runtimes: what drives the agents' generators, and what a run leaves behind.

The code is organised as follows:
    settings     the typed settings of a run
    deployment   data, assignment and topology joined
    simulation   hosts in one process
    training     a simulated run: evaluations, stops, resumption
    messages     what a step sends, by phase and link
    directory    the run directory on disk
    peer         one agent in a process of its own: member (the protocol), program (the training run), transport and
                 sockets (messages), wire (their bytes), shards and checkpoints (its disk), crew (many on one machine)
"""
