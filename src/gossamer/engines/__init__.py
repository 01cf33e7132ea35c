"""Engines: what drives the hosts of a run.

The code is organised as follows:
    simulation   all agents on one host in this process
    cluster      hosts on the ranks of a torch.distributed job
"""
