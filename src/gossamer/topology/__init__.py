"""The communication graph and its combination matrix C (Sec. III-C, IV); arrays in, arrays out.

The code is organised as follows:
    families      agent graphs: complete, ring, line, star, grid, torus, exponential, random, needed by the data
    weights       C on a given graph: Metropolis-Hastings, maximum degree
    fastest       C on a given graph with the least spectral radius
    admm          Algorithm 2, eq. (30)-(38), and the bound that its multiplier proves
    anderson      Anderson acceleration of Algorithm 2
    design        problem (29) solved to a matrix that can be deployed
    assumptions   (A1)-(A3), measured
    sweep         designs for many gaps
    certificate   measurements of a topology, for people and for programs
    restriction   fewer links than the data graph needs
    routes        paths along links for data edges between agents without one
    sequences     links that change from step to step, their matrices C^t and contraction
    deliveries    boundary rows over links that may be down
    checks        checks of links and of a design's input
Here stand the choices of `--topology` and `--mixing`, each a table by name. A new topology is one value in TOPOLOGIES.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gossamer.topology.assumptions import Assumptions, check_assumptions
from gossamer.topology.certificate import Certificate, certify, certify_design
from gossamer.topology.checks import check_agent_graph, check_shared_edges
from gossamer.topology.deliveries import MISSING_ROWS, Deliveries, RowStatistics
from gossamer.topology.design import Design, design
from gossamer.topology.families import (
    Links,
    Matrix,
    complete,
    count_components,
    exponential,
    grid,
    line,
    links_of,
    needed_links,
    random_connected,
    ring,
    star,
    torus,
)
from gossamer.topology.fastest import Progress, fastest_mixing, fastest_weights
from gossamer.topology.restriction import carried_edges, drop_links
from gossamer.topology.routes import Path, Routes, connected_pairs, count_hops, link_load, plan_routes
from gossamer.topology.sequences import (
    Failing,
    LinkSequence,
    Matchings,
    OnePeer,
    Switching,
    keep_up,
    measure_contraction,
    mixed_at,
)
from gossamer.topology.sweep import RADII, Sweep, SweepPoint, draw_shared_edges, sweep_gaps
from gossamer.topology.weights import max_degree_weights, metropolis_weights

__all__ = [
    "MISSING_ROWS",
    "MIXING_WEIGHTS",
    "RADII",
    "TOPOLOGIES",
    "Assumptions",
    "Certificate",
    "Deliveries",
    "Design",
    "Failing",
    "LinkSequence",
    "Links",
    "Matchings",
    "Matrix",
    "OnePeer",
    "Path",
    "Progress",
    "Routes",
    "RowStatistics",
    "Sweep",
    "SweepPoint",
    "Switching",
    "Topology",
    "carried_edges",
    "certify",
    "certify_design",
    "check_agent_graph",
    "check_assumptions",
    "check_shared_edges",
    "complete",
    "connected_pairs",
    "count_components",
    "count_hops",
    "design",
    "draw_shared_edges",
    "drop_links",
    "exponential",
    "fastest_mixing",
    "fastest_weights",
    "grid",
    "keep_up",
    "line",
    "link_load",
    "links_of",
    "max_degree_weights",
    "measure_contraction",
    "metropolis_weights",
    "mixed_at",
    "needed_links",
    "plan_routes",
    "random_connected",
    "ring",
    "star",
    "sweep_gaps",
    "torus",
]


@dataclass(frozen=True)
class Topology:
    """A choice of `--topology`: links alone, which get weights from MIXING_WEIGHTS, or C designed with its links."""

    links: Callable[[Matrix, int], Links]  # of B [m, m], the edges that agents share, and a seed: who may talk [m, m]
    design: Callable[..., Design] | None = None  # of B, the gap and the options of `design`


TOPOLOGIES: dict[str, Topology] = {
    "admm": Topology(lambda B, seed: complete(len(B)), design),
    "needed": Topology(lambda B, seed: needed_links(B)),
    "complete": Topology(lambda B, seed: complete(len(B))),
    "ring": Topology(lambda B, seed: ring(len(B))),
    "line": Topology(lambda B, seed: line(len(B))),
    "star": Topology(lambda B, seed: star(len(B))),
    "grid": Topology(lambda B, seed: grid(len(B))),
    "torus": Topology(lambda B, seed: torus(len(B))),
    "exponential": Topology(lambda B, seed: exponential(len(B))),
    "random": Topology(lambda B, seed: random_connected(len(B), seed)),
}

# Choices of `--mixing`: C [m, m] on the links, without negative weights if the second argument says so.
MIXING_WEIGHTS: dict[str, Callable[[Links, bool], Matrix]] = {
    "metropolis": lambda links, nonnegative: metropolis_weights(links),
    "uniform": lambda links, nonnegative: max_degree_weights(links),
    "fastest": fastest_weights,
}
