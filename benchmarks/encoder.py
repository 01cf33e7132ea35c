"""Accuracy with a private encoder beside the same run without it.

    GOSSAMER_DATA=... python benchmarks/encoder.py [--datasets cora citeseer pubmed] [--encoder 16] [--seeds 20 ... 24]

10 agents, the defaults, 20 labels a class; a seed decides split, assignment and weights. Seeds 0 to 4 were looked at
while the recipe was chosen, seeds from 20 on were not.
"""

import argparse
import statistics

import torch

import gossamer

AGENTS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer", "pubmed"])
    parser.add_argument("--encoder", type=int, default=16)
    parser.add_argument("--seeds", nargs="+", type=int, default=[20, 21, 22, 23, 24])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.datasets:
        found: dict[int, list[float]] = {0: [], options.encoder: []}
        for seed in options.seeds:
            graph = gossamer.load(name, seed)
            for encoder, accuracies in found.items():
                result = gossamer.train(graph, agents=AGENTS, encoder=encoder, seed=seed, baselines=False)
                accuracies.append(100 * result.summary["distributed"]["test"]["accuracy"])
        plain, encoded = (statistics.mean(found[encoder]) for encoder in found)
        each = "; ".join(
            f"{label} {', '.join(f'{accuracy:.1f}' for accuracy in found[encoder])}"
            for label, encoder in (("without", 0), ("with", options.encoder))
        )
        print(f"{name:10s} without {plain:5.2f} %, with {encoded:5.2f} % ({encoded - plain:+.2f})   {each}", flush=True)


if __name__ == "__main__":
    main()
