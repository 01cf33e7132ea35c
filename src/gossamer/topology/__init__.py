"""The communication graph and its combination matrix C (Sec. III-C, IV); arrays in, arrays out.

The code is organised as follows:
    families      agent graphs: complete, ring, line, star, grid, torus, random, exponential, what the data needs
    weights       C on a given graph: Metropolis-Hastings, uniform
    fastest       C on a given graph with the least spectral radius
    admm          Algorithm 2, eq. (30)-(38), and the bound that its multiplier proves
    anderson      its acceleration
    design        problem (29) solved to a matrix that can be deployed
    assumptions   (A1)-(A3), measured
    certificate   what is known of a topology, for people and for programs
    restriction   fewer links than the data graph needs
    checks        the input of a design
"""

from gossamer.topology.assumptions import Assumptions, check_assumptions
from gossamer.topology.certificate import Certificate, certify, certify_design
from gossamer.topology.checks import check_shared_edges
from gossamer.topology.design import Design, design
from gossamer.topology.families import (
    FAMILIES,
    Links,
    complete,
    components,
    exponential,
    grid,
    line,
    links_of,
    needed,
    random_connected,
    ring,
    star,
    torus,
)
from gossamer.topology.fastest import fastest, fastest_mixing
from gossamer.topology.restriction import carried_edges, drop_links
from gossamer.topology.weights import metropolis, uniform

WEIGHTS = {"metropolis": metropolis, "uniform": uniform, "fastest": fastest}

__all__ = [
    "FAMILIES",
    "WEIGHTS",
    "Assumptions",
    "Certificate",
    "Design",
    "Links",
    "carried_edges",
    "certify",
    "certify_design",
    "check_assumptions",
    "check_shared_edges",
    "complete",
    "components",
    "design",
    "drop_links",
    "exponential",
    "fastest",
    "fastest_mixing",
    "grid",
    "line",
    "links_of",
    "metropolis",
    "needed",
    "random_connected",
    "ring",
    "star",
    "torus",
    "uniform",
]
