"""Compare topologies for ten agents that hold the digits: links, spectral radius, and rounds to agree."""

import gossamer
from gossamer import topology
from gossamer.assignment import assign, shared_edges

graph = gossamer.load("digits")
agents = 10
B = shared_edges(graph, assign(graph, "bfs", agents, seed=0), agents)
made = topology.design(B, gap=0.8)
candidates = {
    "designed, gap 0.8": made.combination,
    "needed, fastest": topology.fastest_weights(topology.needed_links(B)),
    "needed, Metropolis": topology.metropolis_weights(topology.needed_links(B)),
    "ring, fastest": topology.fastest_weights(topology.ring(agents)),
    "line, Metropolis": topology.metropolis_weights(topology.line(agents)),
}
print(f"{'':20s} links  missing  radius  rounds for 1e-3")
for name, C in candidates.items():
    found = topology.certify(C, topology.links_of(C), topology.needed_links(B))
    missing = int((found.needed_links & ~found.links).sum()) // 2
    radius = found.assumptions.spectral_radius
    print(f"{name:20s} {found.links.sum() // 2:5d}  {missing:7d}  {radius:6.3f}  {found.rounds}")
