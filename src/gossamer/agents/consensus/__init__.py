"""Consensus: how agents bring their weights closer to the mean (eq. (16)).

The code is organised as follows:
    plain             w_k = sum_z C_kz psi_z
    power_gossip      low-rank differences across a link
    choco_gossip      compressed changes against public copies
    neighbour_slots   one slot for each neighbour of an agent
    compression       how weights are compressed, as a value
"""
