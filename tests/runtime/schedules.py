"""Thousands of schedules of a faulty network, counted: python tests/runtime/schedules.py [SCHEDULES] [FIRST SEED].

Each runs the real training step and the real protocol on a network drawn from its seed; a failing seed is printed and
gives the same failure again.
"""

import random
import sys
import time
from collections import Counter
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from runtime.network import KILLS, Faults, Network


def random_faults(seed: int) -> Faults:
    """How bad a network is, from calm to hopeless, and where agents die."""
    draw = random.Random(seed)
    return Faults(
        drop=draw.choice([0.0, 0.05, 0.2]),
        delay=draw.choice([0.001, 0.01, 0.1]),
        kills=draw.randrange(6),
        kill=draw.choice([0.01, 0.05, 0.2]),
        where=tuple(draw.sample(KILLS, draw.randint(1, len(KILLS)))),
        partition=draw.choice([0.0, 1.0]),
    )


def main(count: int, first: int) -> None:
    from runtime.test_network import check, hosts, problem, undisturbed

    problems = []
    for every in (1, 3, 0):
        case, settings, links = problem(consensus_every=every)
        problems.append((case, settings, links, undisturbed(case, settings)))
    killed = Counter[str]()
    began = time.perf_counter()
    for seed in range(first, first + count):
        case, settings, links, expected = problems[seed % 3]
        network = Network(hosts(case, settings), links, settings, random_faults(seed), seed)
        try:
            network.run()
            check(network, expected)
        except AssertionError:
            print(f"seed {seed} fails; replay it with: python tests/runtime/schedules.py 1 {seed}")
            raise
        killed += network.killed
    print(f"{count} schedules in {time.perf_counter() - began:.0f} s, every one with the undisturbed run's weights")
    for where in KILLS:
        print(f"  killed {where:18} {killed[where]:6} times")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
