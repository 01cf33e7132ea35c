"""Time of commands that train nothing, as ratios against `import torch`, from one run.

    python benchmarks/start.py [--rounds 7] [--json]

`gossamer --help`, `--version`, a mistyped option and `gossamer keys` start without PyTorch. Each is a process of its
own; the competitors take turns, so that a busy machine slows all of them alike, and the medians are compared. Every
ratio should be at most 0.25.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time

BOUND = 0.25
TORCH = "import torch"
COMMANDS = {
    TORCH: ["-c", TORCH],
    "gossamer --help": ["-m", "gossamer", "--help"],
    "gossamer --version": ["-m", "gossamer", "--version"],
    "a mistyped option": ["-m", "gossamer", "train", "--stepsize", "1"],
    "gossamer keys": ["-m", "gossamer", "keys", "--out"],
}


def measure(rounds: int) -> dict[str, float]:
    """Median seconds of each command; a first round, which reads the files from the disk, does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds + 1):
            for name, arguments in COMMANDS.items():
                out = [f"{folder}/{turn}"] if arguments[-1] == "--out" else []
                began = time.perf_counter()
                done = subprocess.run([sys.executable, *arguments, *out], capture_output=True)
                seconds[name].append(time.perf_counter() - began)
                assert done.returncode == (2 if "mistyped" in name else 0), done.stderr.decode()
    return {name: statistics.median(taken[1:]) for name, taken in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    seconds = measure(options.rounds)
    found = {name: taken / seconds[TORCH] for name, taken in seconds.items() if name != TORCH}
    if options.json:
        print(json.dumps({"seconds": seconds, "ratios": found, "bound": BOUND}))
        return
    print(f"{'':20}{'seconds':>9}{'ratio':>8}   (bound {BOUND})")
    print(f"{TORCH:20}{seconds[TORCH]:9.3f}")
    for name, ratio in found.items():
        print(f"{name:20}{seconds[name]:9.3f}{ratio:8.3f}{'' if ratio <= BOUND else '   too slow'}")


if __name__ == "__main__":
    main()
