"""Compare the final bits of short runs before and after a change that must not alter them.

    PYTHONPATH=tests python -m golden record FILE     # before the change
    PYTHONPATH=tests python -m golden compare FILE    # after it: exit code 1 if a digest differs

Digests are SHA-256 of the final weights and of the --json object without its times, on one thread. They belong to a
machine and a build of PyTorch: matrix products differ in the last bit between processors, so that no file of digests is
kept in the repository.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from golden.runs import RUNS, STATED, digest_of_summary, digest_of_weights, digests, graph_for
from safetensors.torch import load_file

DATASET = "blocks:vertices=90,edges=400,features=6,classes=3"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
LAUNCH = [sys.executable, "-m", "gossamer", "launch", "--public-randomness"]  # else every launch has its own bits
COMMANDS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "launch of 3 agents": (LAUNCH, {"agents": 3}),
    "launch of 3 agents, adam, choco": (
        LAUNCH,
        {"agents": 3, "update": "adam", "track": True, "step_size": 0.02, "compress": "choco:bits=8"},
    ),
    "cluster of 2 ranks": (
        [*TORCHRUN, "-m", "gossamer", "cluster"],
        {},
    ),
}


def resume_run() -> dict[str, str]:
    """A run of 6 steps, taken up again for 12."""
    import gossamer

    name = "gcn with bias, three layers, momentum"
    with tempfile.TemporaryDirectory() as folder:
        out, graph = Path(folder) / "run", graph_for(name)
        gossamer.train(graph, out=out, **{**STATED, **RUNS[name], "steps": 6})
        result = gossamer.resume(out, 12, graph=graph)
        metrics = hashlib.sha256((out / "metrics.jsonl").read_bytes()).hexdigest()
    return {
        "weights": digest_of_weights(result.run.host.params),
        "summary": digest_of_summary(result.summary),
        "digest of metrics.jsonl": metrics,
    }


def run_command(command: list[str], changes: dict[str, Any]) -> dict[str, str]:
    settings = {**STATED, "dataset": DATASET, **changes, "hidden": "6"}
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "settings.toml", Path(folder) / "run"
        path.write_text("\n".join(lines))
        done = subprocess.run([*command, str(path), "--json", "--out", str(out)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr}")
        return {
            "weights": digest_of_weights(load_file(out / "weights.safetensors")),
            "summary": digest_of_summary(json.loads(done.stdout)),
        }


def main() -> None:
    what, path = sys.argv[1], Path(sys.argv[2])
    found = {name: digests(name) for name in RUNS} | {"resumed": resume_run()}
    found |= {name: run_command(*how) for name, how in COMMANDS.items()}
    if what == "record":
        path.write_text(json.dumps(found, indent=1))
        return
    before = json.loads(path.read_text())
    differing = [
        f"{name}: {part}" for name in before for part in before[name] if found[name][part] != before[name][part]
    ]
    print("\n".join(differing) or f"{len(before)} runs, the same bits")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
