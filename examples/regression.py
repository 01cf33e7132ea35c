"""Real values: the temperature at stations, from noisy readings there and nearby."""

import numpy as np

import gossamer

random = np.random.default_rng(0)
n = 300
place = random.random((n, 2))
distance = np.linalg.norm(place[:, None] - place, axis=-1)
i, j = np.nonzero(np.triu(distance < 0.12, k=1))
temperature = np.sin(4 * place[:, 0]) + np.cos(3 * place[:, 1])  # real numbers are values to predict
readings = temperature[:, None] + random.normal(size=(n, 3))
part = np.arange(n) % 4

graph = gossamer.make_graph(
    "stations",
    np.stack([i, j], axis=1),
    readings,
    temperature,
    train=part == 0,
    validation=part == 1,
    test=part > 1,
    positions=place,
)
result = gossamer.train(graph, agents=4, assignment="nearest", steps=100, dropout=0.0)
for model in ("distributed", "centralised", "graphless"):
    print(f"{model:12s} mean squared error {result.summary[model]['test']['loss']:.4f}")
