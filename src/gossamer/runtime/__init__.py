"""Runtimes: what drives the agents' generators, and what a run leaves behind.

The code is organised as follows:
    settings     the typed settings of a run
    deployment   data, assignment and topology joined
    simulation   engines drive hosts; the one of a single process
    training     a run whose hosts move in step: evaluations, stops, resumption
    messages     what a step sends, by phase and link
    directory    the run directory on disk
    memory       how a process keeps memory for its messages
    peer         one agent in a process of its own: work and program (what it does), member and place (the protocol),
                 transport, sockets and connections (messages), wire (their bytes), shards, checkpoints, records and
                 refusals (its disk), crew (many on one machine), turns (how they share it)
    sites        an agent whose data no one pools, from its own site file
    cluster      hosts on the ranks of a torch.distributed job: job (how ranks meet and divide the agents),
                 rank_shards (a share cut for each rank)
"""
