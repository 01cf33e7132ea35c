"""Several labels a vertex: members of a club, each with any of three interests that friends tend to share."""

import numpy as np

import gossamer

random = np.random.default_rng(0)
n = 240
tastes = random.normal(size=(n, 3))
distance = np.linalg.norm(tastes[:, None] - tastes, axis=-1)
friends = np.argsort(distance, axis=1)[:, 1:7]
edges = np.stack([np.repeat(np.arange(n), 6), friends.reshape(-1)], axis=1)
features = np.concatenate([tastes + random.normal(size=(n, 3)), random.normal(size=(n, 5))], axis=1)
interests = tastes > 0.3  # 0 or 1 for each of three labels
part = np.arange(n) % 4

graph = gossamer.make_graph(
    "club",
    edges,
    features,
    interests,
    train=part == 0,
    validation=part == 1,
    test=part > 1,
    class_names=("chess", "music", "tennis"),
)
result = gossamer.train(graph, agents=4, steps=100, baselines=False)
found = result.predict().sigmoid().numpy() > 0.5
for label, name in enumerate(graph.class_names or ()):
    right = (found == interests)[graph.test, label].mean()
    print(f"{name:7s} {right:.3f} of the test vertices right")
