"""A rare class: one account in twelve is fraudulent. Balanced class weights find more of them; sample weights count
checked accounts more than guessed ones."""

import warnings

import numpy as np

import gossamer

random = np.random.default_rng(0)
n = 600
fraud = (np.arange(n) % 12 == 0).astype(int)
edges = random.integers(0, n, (4 * n, 2))
alike = fraud[edges[:, 0]] == fraud[edges[:, 1]]
edges = edges[(alike | (random.random(len(edges)) < 0.3)) & (edges[:, 0] != edges[:, 1])]
features = fraud[:, None] + random.normal(size=(n, 4))
part = np.arange(n) // 12 % 4
checked = random.random(n) < 0.5

with warnings.catch_warnings():
    warnings.simplefilter("ignore", gossamer.GossamerWarning)  # some accounts have no edge
    graph = gossamer.make_graph(
        "accounts",
        edges,
        features,
        fraud,
        train=part == 0,
        validation=part == 1,
        test=part > 1,
        class_names=("honest", "fraud"),
        sample_weights=np.where(checked, 1.0, 0.5),
    )
for how in ("none", "balanced"):
    result = gossamer.train(graph, agents=4, steps=100, class_weights=how, baselines=False)
    found = result.predict().argmax(1).numpy()
    recall = found[graph.test & (fraud == 1)].mean()
    print(f"class weights {how:9s} {recall:.2f} of the fraudulent accounts found")
