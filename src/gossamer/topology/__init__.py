"""The communication graph and its combination matrix C (Sec. III-C, IV); arrays in, arrays out.

The code is organised as follows:
    families      agent graphs: complete, ring, line, the links that the data needs
    weights       C on a given graph: Metropolis-Hastings, uniform
    assumptions   (A1)-(A3), measured
    restriction   which data edges a topology carries
"""

from gossamer.topology.assumptions import Assumptions, check_assumptions
from gossamer.topology.families import complete, line, needed, ring
from gossamer.topology.restriction import carried_edges
from gossamer.topology.weights import metropolis, uniform

__all__ = [
    "Assumptions",
    "carried_edges",
    "check_assumptions",
    "complete",
    "line",
    "metropolis",
    "needed",
    "ring",
    "uniform",
]
