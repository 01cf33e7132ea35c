"""The cluster engine: hosts on the ranks of a torch.distributed job (docs/scaling.md).

The code is organised as follows:
    distributed     torch.distributed, behind one module
    engine          a rank's part in a run: exchanges, sums, gathered arrays
    job             how ranks meet, agree on what they run, and divide the agents
    heartbeats      liveness of ranks
    shared_memory   messages between ranks on one machine
    rank_shards     a share cut for each rank
"""
