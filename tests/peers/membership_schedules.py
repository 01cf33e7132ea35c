"""Thousands of schedules of a network whose agents leave, are lost, join and move, counted.

python tests/peers/membership_schedules.py [SCHEDULES] [FIRST SEED]

Each runs the real protocol with a small program (groups.py) on a network drawn from its seed; a failing seed is printed
and gives the same failure again. Every schedule must end with the bits of the replay, with one history, and with
progress wherever a majority of the members is connected.
"""

import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from peers.groups import GroupNetwork, Point, Scenario


def draw_scenario(seed: int) -> Scenario:
    """A network of two to six agents and what happens to it."""
    draw = random.Random(f"memberships {seed}")
    m = draw.choice([2, 3, 4, 5, 6])
    links = {(i, (i + 1) % m) for i in range(m)} if m > 2 else {(0, 1)}
    links |= {(i, j) for i in range(m) for j in range(i + 2, m) if (j + 1) % m != i and draw.random() < 0.4}
    lost = draw.sample(range(m), draw.randrange((m - 1) // 2 + 1))
    staying = [k for k in range(m) if k not in lost]
    leaving = draw.sample(staying, draw.randrange(2)) if m > 3 else []
    staying = [k for k in staying if k not in leaving]
    moving = draw.sample(staying, 1) if draw.random() < 0.2 else []
    joining = range(m, m + draw.choice([0, 0, 1, 1, 2]))
    links |= {(z, k) for k in joining for z in draw.sample(staying, min(len(staying), draw.choice([1, 2])))}
    splits = []
    for _ in range(draw.choice([0, 0, 0, 1, 2])):
        start = draw.uniform(0, 10)
        part = frozenset(draw.sample(range(m), draw.randrange(1, m)))
        splits.append((part, start, start + draw.uniform(1, 30)))
    kills = tuple((draw.choice(list(Point)), 1 + draw.randrange(30)) for _ in range(draw.randrange(6)))

    def at_times(agents: list[int] | range) -> tuple[tuple[int, float], ...]:
        return tuple((k, draw.uniform(0, 3)) for k in agents)

    return Scenario(
        m,
        tuple(sorted(links)),
        drop=draw.choice([0, 0.05, 0.2]),
        double=draw.choice([0, 0.1]),
        delay=draw.choice([0.001, 0.01, 0.1]),
        kills=kills,
        lost=at_times(lost),
        leaving=at_times(leaving),
        joining=at_times(joining),
        moving=at_times(moving),
        splits=tuple(splits),
        wiped=tuple((k, draw.uniform(2, 12)) for k in joining if draw.random() < 0.3),
        erased=tuple((k, draw.uniform(2, 12)) for k in joining if draw.random() < 0.3),
    )


def run_schedule(seed: int) -> GroupNetwork:
    """One schedule to its end, checked."""
    network = GroupNetwork(draw_scenario(seed), seed)
    network.run()
    network.check()
    return network


def _count(seed: int) -> tuple[Counter[Point], Counter[str], str | None]:
    try:
        network = run_schedule(seed)
    except Exception as error:
        return Counter(), Counter(), f"seed {seed} fails with {type(error).__name__}: {error}"
    return network.killed, network.happened, None


def main(count: int, first: int) -> None:
    if count == 1:
        run_schedule(first)  # here, so that a failure shows its trace
        return print(f"seed {first} ends as it must")
    killed, happened, began = Counter[Point](), Counter[str](), time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), torch.set_num_threads, (1,)) as pool:
        for kills, others, failure in pool.imap(_count, range(first, first + count), chunksize=20):
            if failure is not None:
                seed = failure.split()[1]
                sys.exit(f"{failure}\nreplay it with: python tests/peers/membership_schedules.py 1 {seed}")
            killed, happened = killed + kills, happened + others
    seconds = time.perf_counter() - began
    print(f"{count} schedules in {seconds:.0f} s, every one with one history and the weights of its replay")
    for point in Point:
        print(f"  killed {point:59} {killed[point]:7} times")
    for what in sorted(happened):
        print(f"  {what:66} {happened[what]:7} times")


if __name__ == "__main__":
    given = [*sys.argv[1:], *("1000", "0")[len(sys.argv) - 1 :]]
    main(int(given[0]), int(given[1]))
