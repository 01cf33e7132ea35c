"""Thousands of schedules of a faulty network, counted.

python tests/peers/schedules.py [SCHEDULES] [FIRST SEED] [KIND]

Each runs the real training step and the real protocol on a network drawn from its seed; a failing seed is printed and
gives the same failure again. KIND is faults; or lies, with an agent that lies as well; or floods, with one that sends
hundreds of statuses a second.
"""

import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from peers.byzantine import ByzantineAgent, Lie
from peers.disks import Kill
from peers.memo import Stage
from peers.network import Faults, Network
from peers.problems import M, Problem, problem

from gossamer.errors import GossamerError
from gossamer.peers.refusals import RECOVERY_REASONS

CHEBYSHEV = {"layers": "chebyshev", "order": 2, "hidden": 2}
ADAM = {"update": "adam", "step_size": 0.01}
PROBLEMS: list[dict[str, Any]] = [  # consensus in every step, every third, never; each in a line and in a ring
    {"topology": "line"},
    {"topology": "ring", **ADAM, "consensus_every": 3},
    {"topology": "line", **CHEBYSHEV, **ADAM, "dropout": 0.0, "consensus_every": 0},
    {"topology": "ring", **CHEBYSHEV, "consensus_every": 1},
    {"topology": "line", "update": "gd", "consensus_every": 3},
    {"topology": "line", "lost_edges": "relay", **CHEBYSHEV},
    {"topology": "ring", "consensus_every": 0},
]
ANEW = 10  # every so many schedules the training steps are computed, not taken from memory


@cache
def quiet(number: int) -> tuple[Problem, Counter[Kill], dict[bytes, Stage]]:
    """A problem, how often each step of the protocol comes in a run without faults, and what has been computed."""
    made, memory = problem(**PROBLEMS[number]), dict[bytes, Stage]()
    network = Network(made, Faults(), 0, memory)
    network.run()
    return made, network.occasions, memory


def random_faults(seed: int, occasions: Counter[Kill], ring: bool) -> Faults:
    """Faults of a network, from calm to hopeless, and the points where agents die: points are equally likely, and so
    are the occasions there. In a ring a link may be down from the beginning to the end, in one direction or both."""
    draw = random.Random(seed)
    places = draw.choices(list(Kill), k=draw.randrange(6))
    down = _random_link(draw) if ring and draw.random() < 0.3 else ()
    return Faults(
        drop=draw.choice([0.0, 0.05] if down else [0.0, 0.05, 0.2]),  # on every link of a detour
        double=draw.choice([0.0, 0.1]),
        delay=draw.choice([0.001, 0.01, 0.1]),
        kills=tuple((place, 1 + draw.randrange(max(occasions[place], 2))) for place in places),
        forget=draw.choice([0.0, 0.0, 0.5]),
        power_cut=draw.choice([None, None, draw.uniform(0, 2)]),
        partition=draw.choice([0.0, 1.0, 15.0]),
        damage=draw.choice([0.0, 0.0, 0.0, 0.5]),
        down=down,
    )


def _random_link(draw: random.Random) -> tuple[tuple[int, int], ...]:
    """A link of the ring, in one direction or both."""
    k = draw.randrange(M)
    there, back = (k, (k + 1) % M), ((k + 1) % M, k)
    return draw.choice([(there,), (back,), (there, back), (there, back)])


def run_schedule(seed: int, kind: str = "faults") -> Network:
    """One schedule to its end, checked: with the bits of the undisturbed run, or an error that names the liar."""
    made, occasions, memory = quiet(seed % len(PROBLEMS))
    anew = seed // len(PROBLEMS) % ANEW == 0
    ring = PROBLEMS[seed % len(PROBLEMS)]["topology"] == "ring"
    faults = random_faults(seed, occasions, ring and kind == "faults")
    if kind == "faults":
        network = Network(made, faults, seed, None if anew else memory)
        network.run()
        check(network)
        network.happened["link down all the time"] += bool(faults.down)
        return network
    draw = random.Random(f"{seed} {kind}")
    relays = "lost_edges" in PROBLEMS[seed % len(PROBLEMS)]  # sealed boxes tell who lied
    network = Network(made, faults if draw.random() < 0.5 else Faults(), seed, None if relays else memory)
    liar = ByzantineAgent(network, draw.randrange(M), draw, random_lies(draw, kind))
    try:
        network.run()
    except GossamerError as error:
        if f"agent {liar.agent} " not in str(error):
            raise AssertionError(f"agent {liar.agent} lied, and the error is: {error}") from None
        network.happened["ended with an error that names the liar"] += 1
    else:
        check(network)
        network.happened["ended with the undisturbed run's weights"] += 1
    network.happened.update({f"sent {lie}": count for lie, count in liar.count.items()})
    for member in network.last.values():
        refused = {
            f"refused: {reason}": count for reason, count in member.refused.items() if reason not in RECOVERY_REASONS
        }
        network.happened.update(refused)
    return network


def random_lies(draw: random.Random, kind: str) -> tuple[Lie, ...]:
    """A flood, or up to ten lies; some end a run, and are rare."""
    if kind == "floods":
        return (Lie.FLOOD,) * draw.randrange(1, 4)
    ends = (Lie.IN_PLACE, Lie.OWN_DONE, Lie.TWO_STEPS)
    often = [lie for lie in Lie if lie not in (*ends, Lie.FLOOD)]
    return (*draw.choices(often, k=draw.randrange(1, 11)), *(lie for lie in ends if draw.random() < 0.1))


def check(network: Network) -> None:
    """Every agent has ended with the bits of the undisturbed run."""
    for k, params in enumerate(network.problem.expected):
        for name, part in params.items():
            assert torch.equal(network.finals[k][name], part), f"agent {k}: {name}"


def _counted(kind: str, seed: int) -> tuple[Counter[Kill], Counter[str], int, str | None]:
    try:
        network = run_schedule(seed, kind)
    except Exception as error:
        return Counter(), Counter(), 0, f"seed {seed} fails with {type(error).__name__}: {error}"
    return network.killed, network.happened, network.most_held, None


def main(count: int, first: int, kind: str) -> None:
    """Side by side in a process for each processor; the counts are those of the seeds, however they are shared out."""
    torch.set_num_threads(1)
    if count == 1:
        run_schedule(first, kind)  # here, so that a failure shows its trace
        return print(f"seed {first} ends as it must")
    killed, happened, most = Counter[Kill](), Counter[str](), 0
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), torch.set_num_threads, (1,)) as pool:
        seeds = range(first, first + count)
        for kills, others, held, failure in pool.imap(partial(_counted, kind), seeds, chunksize=20):
            if failure is not None:
                seed = failure.split()[1]
                sys.exit(f"{failure}\nreplay it with: python tests/peers/schedules.py 1 {seed} {kind}")
            killed, happened, most = killed + kills, happened + others, max(most, held)
    end = "" if kind == "faults" else ", or with an error that names the liar"
    seconds = time.perf_counter() - began
    print(f"{count} schedules with {kind} in {seconds:.0f} s, every one with the undisturbed run's weights{end}")
    for place in Kill:
        print(f"  killed {place:59} {killed[place]:7} times")
    for fault in sorted(happened):
        print(f"  {fault:66} {happened[fault]:7} times")
    print(f"  held for one neighbour, or for later: {most} messages at most")


if __name__ == "__main__":
    given = [*sys.argv[1:], *("1000", "0", "faults")[len(sys.argv) - 1 :]]
    main(int(given[0]), int(given[1]), given[2])
