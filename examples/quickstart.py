"""Train a graph network across ten agents and compare it with the centralised one."""

import gossamer

graph = gossamer.load("digits")
result = gossamer.train(graph, agents=10, steps=200, seed=0)
for model in ("distributed", "centralised", "graphless"):
    print(f"{model:12s} test accuracy {result.summary[model]['test']['accuracy']:.3f}")
print(f"agents differ by {result.summary['disagreement']:.1e} on average")
classes = result.run.predict().argmax(1)
