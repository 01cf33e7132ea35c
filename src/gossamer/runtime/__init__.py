"""Runtimes: what drives the agents' generators, and what a run leaves behind.

The code is organised as follows:
    settings     the typed settings of a run; toml_files: the one reader of TOML
    deployment   data, assignment and topology joined; capacity: what they take in memory
    simulation   engines drive hosts; the one of a single process
    training     a run whose hosts move in step: evaluations, stops, resumption
    messages     what a step sends, by phase and link
    directory    the run directory on disk: run_checkpoints (the newest and the one before)
    tensors      files of named arrays with a checksum; documents and manifests (JSON files and their typed models),
                 arrays and share_checks (arrays in their type, shape and range) are what every file is held against
    memory       how a process keeps memory for its messages
    peer         one agent in a process of its own: work and program (what it does), member and place (the protocol),
                 exchanges and kept (its frames), facts and signatures (what agents state), magnitudes (bounds on
                 numbers), transport, sockets, monitor, listener and connections (messages), wire (their bytes),
                 addresses and keys (where they go), shards, checkpoints, records and refusals (its disk), crew (many on
                 one machine), turns (how they share it)
    sites        an agent whose data no one pools, from its own site file; site_files: the keys of that
    cluster      hosts on the ranks of a torch.distributed job: job (how ranks meet and divide the agents),
                 rank_shards (a share cut for each rank), heartbeats (who of them lives)
"""
