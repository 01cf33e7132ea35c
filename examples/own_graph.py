"""A graph of your own: two noisy communities, three sites that hold their vertices, and a ring between them."""

import networkx
import numpy as np

import gossamer

random = np.random.default_rng(0)
network = networkx.planted_partition_graph(2, 60, 0.2, 0.02, seed=0)
for vertex in network.nodes:
    community = vertex // 60
    network.nodes[vertex]["x"] = random.normal(community, 2.0, size=8)
    network.nodes[vertex]["y"] = ("left", "right")[community]
    network.nodes[vertex]["split"] = ("train", "validation", "test", "test", "test", "test")[vertex % 6]

graph = gossamer.from_networkx(network)
sites = np.arange(120) // 40
result = gossamer.train(graph, agents=3, topology="ring", steps=100, step_size=0.05, given={"assignment": sites})
print(result.summary["distributed"]["test"], "against", result.summary["graphless"]["test"], "without the graph")
