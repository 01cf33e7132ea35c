"""One rank of a job that trains several small problems, one after the other, and leaves their weights:
python tests/engines/ranks.py FOLDER RANKS."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from engines.forked import launch_ranks

from gossamer.agents.step import training_step
from gossamer.api import predict
from gossamer.engines.cluster import distributed, job
from gossamer.engines.cluster.engine import Cluster
from gossamer.engines.cluster.rank_shards import cut_for_ranks, start_on_shards
from gossamer.engines.cluster.shared_memory import SharedChannel, connect_local_ranks
from gossamer.engines.simulation import start_run
from gossamer.errors import GossamerError
from gossamer.experiments.theory import draw_block_graph
from gossamer.runs import directory
from gossamer.runs.documents import to_json
from gossamer.runs.handover import train_stages
from gossamer.runs.message_counts import between_hosts
from gossamer.runs.observers import Observer
from gossamer.runs.run import Run
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.summaries import measure_final_scores
from gossamer.runs.tensors import write_tensors
from gossamer.runs.training import run_training

CASES: dict[str, dict[str, Any]] = {
    "gcn, gd": {"update": "gd", "step_size": 0.1},
    "chebyshev, momentum, bias": {"layers": "chebyshev", "order": 2, "step_size": 0.02, "bias": True},
    "adam, dropout": {"update": "adam", "step_size": 0.01, "dropout": 0.5},
    "every 3, line": {"consensus_every": 3, "topology": "line", "step_size": 0.1},
    "line, relayed": {"update": "gd", "topology": "line", "lost_edges": "relay", "step_size": 0.1},
    "gat, relayed": {"layers": "gat", "heads": 2, "lost_edges": "relay", "boundary_bits": 8, "dropout": 0.3},
    "power, adam": {"compress": "power:1", "update": "adam", "step_size": 0.01},
    "choco, rounded rows": {"compress": "choco:bits=8", "step_size": 0.1, "boundary_bits": 8},
    "masked, tracked": {"consensus": "masked", "update": "adam", "step_size": 0.01},
    "ranked": {"update": "gd", "step_size": 0.1, "score": "average_precision"},
    "gat, residual, norm": {"layers": "gat", "heads": 2, "attention_dropout": 0.3, "residual": True, "norm": "layer"},
    "list": {"layers": "gated/gatv2/sage/sage:aggregate=max", "update": "adam", "step_size": 0.01, "jump": "max"},
    "gin, choco": {"layers": "gin", "compress": "choco:bits=8", "step_size": 0.01},
    "appnp, tracked": {"layers": "appnp", "order": 3, "update": "adam", "step_size": 0.01, "track": True},
    "encoder": {"encoder": 3, "encoder_steps": 8, "update": "adam", "step_size": 0.01},
    "private": {"privacy": "node:epsilon=8,delta=1e-5", "encoder_steps": 8, "step_size": 1.0},
    "never": {"consensus_every": 0, "update": "gd", "step_size": 0.1, "dropout": 0.2},
}


def settings_of(case: str) -> Settings:
    return make_settings(
        {"preset": "paper", "dataset": "blocks", "agents": 6, "topology": "ring", "steps": 12, "hidden": 8,
         "dtype": "float64", "evaluate_every": 6, "initial_deviation": 0.3, "dropout": 0.0, **CASES[case]}
    )  # fmt: skip


def main(folder: Path) -> None:
    with job.join_job() as rank:
        if dist.get_world_size() > 1:
            _check_mistakes(rank)
        for number, case in enumerate(CASES):
            settings = settings_of(case)
            (folder / str(number)).mkdir(parents=True, exist_ok=True)
            started = job.start_on_ranks(draw_block_graph(), settings)
            state = run_training(train_stages(started, lambda name, steps: Observer()))
            directory.save_weights(folder / str(number), state)
            _save_scores(folder / str(number), state)
            _check_bytes(state, settings)
        _train_from_shards(folder / "cut", rank)
        _predict(folder / "cut")
        _check_own_shift()
        _train_apart(folder / "apart")


def _save_scores(folder: Path, state: Run) -> None:
    """All scores at the end, of which every rank has the same."""
    found = to_json(measure_final_scores(state))
    assert set(distributed.gather_texts(found)) == {found}
    if state.engine.leads:
        (folder / "scores.json").write_text(found)


def _train_apart(folder: Path) -> None:
    """The first case as if only ranks 2 and 3 were on one machine: the others use the network."""

    def connect(rank: int, gather_texts: Any) -> dict[int, SharedChannel]:
        channels = connect_local_ranks(rank, gather_texts)
        return {other: channel for other, channel in channels.items() if other // 2 == rank // 2 == 1}

    folder.mkdir(exist_ok=True)
    settings = settings_of("gcn, gd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "connect_local_ranks", connect)
        state = run_training(job.start_on_ranks(draw_block_graph(), settings))
    directory.save_weights(folder, state)
    _check_bytes(state, settings)


def _train_from_shards(folder: Path, rank: int) -> None:
    """The first case once more, each rank from what was cut for it; stopped half-way and resumed."""
    settings = settings_of("gcn, gd")
    with job.share_errors():
        if rank == 0:
            cut_for_ranks(folder, draw_block_graph(), settings, dist.get_world_size())
    half = run_training(start_on_shards(folder, steps=settings.steps // 2))
    directory.save_checkpoint(folder, half)
    dist.barrier()
    done = run_training(start_on_shards(folder))
    directory.save_weights(folder, done)
    _save_scores(folder, done)
    if rank == 0:
        (folder / "rank-0" / "share.safetensors").unlink()
    with pytest.raises(GossamerError, match="is missing; copy the shard again"):
        start_on_shards(folder)


def _predict(folder: Path) -> None:
    """Every rank returns all outputs, of which the first rank's are stored."""
    outputs = predict(folder, graph=draw_block_graph(), start=job.start_on_ranks)
    everyone = [torch.empty_like(outputs) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, outputs)
    assert all(torch.equal(other, outputs) for other in everyone)
    if dist.get_rank() == 0:
        write_tensors(folder / "predictions.safetensors", {"outputs": outputs})


def _check_own_shift() -> None:
    """A run with a user's shift operator is known by it, whatever hosts it."""
    settings, graph = settings_of("gcn, gd"), draw_block_graph()
    shift = start_run(graph, settings).deployment.shift * 0.5
    ranks, alone = (start(graph, settings, shift=shift) for start in (job.start_on_ranks, start_run))
    assert ranks.fingerprint == alone.fingerprint != graph.fingerprint()


def _check_mistakes(rank: int) -> None:
    """A mistake on one rank ends all of them, with the same message."""
    settings = settings_of("never")
    with pytest.raises(GossamerError, match="rank 1: no such file"), job.share_errors():
        _fail_on(1, rank)
    for changes, message in (
        ({"seed": rank}, "all ranks must run the same: --seed is 0 on rank 0, 1 on rank 1"),
        ({"agents": 1}, "ranks are more than 1 agents"),
        ({"assignment": "nowhere"}, "rank 0: expected an assignment among"),  # which the first rank alone makes
    ):
        with pytest.raises(GossamerError, match=message):
            job.start_on_ranks(draw_block_graph(), settings.model_copy(update=changes))
    with pytest.raises(GossamerError, match="all ranks must run the same: the data is"):
        job.start_on_ranks(draw_block_graph(seed=rank), settings)


def _fail_on(one: int, rank: int) -> None:
    if rank == one:
        raise GossamerError("no such file")


def _check_bytes(state: Run, settings: Settings) -> None:
    """One more step sends the planned bytes to other ranks."""
    engine, every = state.engine, settings.consensus_every
    assert isinstance(engine, Cluster)
    before = dict(engine.sent_bytes)
    state.host, _ = engine.run(training_step(state.host))
    sent = {phase: engine.sent_bytes[phase] - before.get(phase, 0) for phase in ("forward", "backward", "consensus")}
    whole = {phase: int(engine.total(torch.tensor(float(count)))) for phase, count in sent.items()}
    planned = between_hosts(state.deployment, settings, engine.hosting)
    mixes = bool(every) and (settings.steps + 1) % every == 0
    assert whole == planned | ({} if mixes else {"consensus": 0})


if __name__ == "__main__":
    launch_ranks(int(sys.argv[2]), main, Path(sys.argv[1]))
