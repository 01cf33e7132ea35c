"""A torch.distributed job around a run: ranks join it, check that they run the same, and divide the agents."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from gossamer.agents.salts import Secrets
from gossamer.data import DataGraph
from gossamer.data.standardisation import Transform
from gossamer.engines.cluster import distributed
from gossamer.engines.cluster.distributed import gather_texts
from gossamer.engines.cluster.engine import Cluster, LostRank
from gossamer.engines.cluster.heartbeats import GIVE_UP, Heartbeats
from gossamer.engines.cluster.shared_memory import connect_local_ranks
from gossamer.errors import GossamerError
from gossamer.runs.deployment import Deployment, Progress, make_deployment
from gossamer.runs.handover import hand_over
from gossamer.runs.hosts import build_host, cut_share
from gossamer.runs.initial_weights import GivenWeights, InitialWeights
from gossamer.runs.link_sequences import require_fixed_links
from gossamer.runs.run import Run, Stage, fingerprint_data
from gossamer.runs.run_json import GOSSAMER_VERSION
from gossamer.runs.settings import Settings
from gossamer.runs.stages import GRAPH, STAGES, build_network, fit_settings, list_stages, stage_settings

RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # environment variable of torchrun


def was_restarted() -> bool:
    """Return whether torchrun has started the ranks again after a failure."""
    return os.environ.get(RESTARTS, "0") != "0"


@contextmanager
def join_job(give_up: float = GIVE_UP) -> Iterator[int]:
    """Join the job that torchrun has started; yield this process's rank.

    If a rank shows no sign of life for `give_up` seconds, the others end.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        raise GossamerError(
            "cluster runs as one of several ranks; start it with: torchrun --nproc-per-node 2 -m gossamer cluster ..."
        )
    try:
        store, rank, size = distributed.join_group(os.environ.get(RESTARTS, "0"))
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise GossamerError(
            f"rank {os.environ['RANK']} cannot meet the others at {where}: {str(error).splitlines()[0][:200]}; see "
            "that the port is free on the first node and open to the others"
        ) from None
    signal.signal(signal.SIGTERM, _end_on_signal)
    try:
        with Heartbeats(store, rank, size, give_up) as beats:
            try:
                yield rank
            except LostRank as error:
                raise LostRank(beats.describe_silence() or str(error)) from None
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this rank ends by itself, and says why
        distributed.leave_group()


def _end_on_signal(number: int, frame: Any) -> None:
    """Handle SIGTERM, by which torchrun ends this rank when another has failed.

    A call that waits for the failed rank fails before, and names it.
    """
    raise LostRank(
        f"rank {distributed.own_rank()} was told to end: another rank has failed, or torchrun itself was ended"
    )


@contextmanager
def share_errors() -> Iterator[None]:
    """Raise an error of any rank on all of them, with the same message. The block may not contain collectives."""
    error = ""
    try:
        yield
    except (GossamerError, OSError) as failed:
        error = str(failed)
    errors = gather_texts(error)
    for rank, text in enumerate(errors):
        if text:
            everywhere = all(other == text for other in errors)
            raise GossamerError(text if everywhere else f"rank {rank}: {text}")


def start_on_ranks(
    graph: DataGraph,
    settings: Settings,
    progress: Progress | None = None,
    *,
    assignment: NDArray[np.int64] | None = None,
    combination: NDArray[np.float64] | None = None,
    shift: Any = None,
    initial: GivenWeights | None = None,
    secrets: Secrets | None = None,
    encodings: NDArray[Any] | None = None,
) -> Run:
    """A run at step 0 with this rank's agents alone on its host; a StartRun.

    The rank that leads decides assignment and C, which need not come out alike on different machines.
    """
    settings = fit_settings(settings, graph)
    require_fixed_links(settings, "ranks")
    check_same_run(settings, graph.fingerprint())
    size = distributed.num_ranks()
    if size > settings.agents:
        raise GossamerError(f"{size} ranks are more than {settings.agents} agents; start fewer, or give more --agents")
    deployment = _agree_on_deployment(graph, settings, progress, assignment, combination, shift, initial)
    hosting = divide_agents(deployment, size)
    engine = make_engine(hosting, settings)
    agents, own_shift = engine.agents_of(engine.rank), shift is not None
    fingerprint = fingerprint_data(graph, deployment.shift if own_shift else None)

    def start_stage(name: str, handed: NDArray[Any] | None) -> Run:
        at = replace(deployment, stage=name, handed=handed)
        host = build_host(at, settings, agents, hosting, secrets)
        run = Run(stage_settings(settings, name), at, host, fingerprint, engine, own_shift, secrets=secrets)
        if name != GRAPH:
            share, after = cut_share(deployment, settings, agents, hosting), STAGES[STAGES.index(name) + 1]
            finish = partial(hand_over, name, share=share, settings=settings, secrets=secrets)
            run.stage = Stage(name, settings, share, finish, partial(start_stage, after))
        return run

    return start_stage(GRAPH, encodings) if encodings is not None else start_stage(list_stages(settings)[0], None)


def make_engine(hosting: NDArray[np.int64], settings: Settings) -> Cluster:
    """This rank's engine, with shared memory to the ranks on its machine; `hosting` is the rank of each agent [m]."""
    return Cluster(hosting, settings.torch_dtype, connect_local_ranks(distributed.own_rank(), gather_texts))


def check_same_run(settings: Settings, fingerprint: str) -> None:
    """Refuse ranks whose versions, settings or data are not those of the first."""
    own = {
        "Gossamer": GOSSAMER_VERSION,
        "PyTorch": torch.__version__,
        **{f"--{name.replace('_', '-')}": value for name, value in settings.model_dump(mode="json").items()},
        "the data": fingerprint[:16],
    }
    first, *others = [json.loads(text) for text in gather_texts(json.dumps(own))]
    for rank, other in enumerate(others, 1):
        differs = [name for name in first if first[name] != other.get(name)]
        if differs:
            name = differs[0]
            raise GossamerError(
                f"all ranks must run the same: {name} is {first[name]!r} on rank 0, {other.get(name)!r} on rank {rank}"
            )


def _agree_on_deployment(
    graph: DataGraph,
    settings: Settings,
    progress: Progress | None,
    assignment: NDArray[np.int64] | None,
    combination: NDArray[np.float64] | None,
    shift: Any,
    initial: GivenWeights | None,
) -> Deployment:
    deployment: Deployment | None = None
    with share_errors():
        if distributed.own_rank() == 0:
            deployment = make_deployment(graph, settings, assignment, combination, shift, progress, initial)
    assigned = np.empty(graph.num_vertices, dtype=np.int64) if deployment is None else deployment.assignment
    length = np.array([0 if deployment is None else len(deployment.topologies)])
    for array in (assigned, length):
        distributed.broadcast(torch.from_numpy(array))
    combinations = np.empty((length[0], settings.agents, settings.agents))
    if deployment is not None:
        combinations[:] = deployment.combination
    distributed.broadcast(torch.from_numpy(combinations))
    agreed_initial = _agree_on_initial(graph, settings, deployment)
    return deployment or make_deployment(graph, settings, assigned, combinations, shift, initial=agreed_initial)


def _agree_on_initial(graph: DataGraph, settings: Settings, deployment: Deployment | None) -> InitialWeights | None:
    """The initial weights of the rank that leads, whose files the others may not have."""
    own = None if deployment is None else deployment.initial
    stored = {} if own is None or own.transform is None else own.transform.arrays()
    some = torch.tensor([own is not None, "feature_scale" in stored, "target_scale" in stored], dtype=torch.int64)
    distributed.broadcast(some)
    given, features, targets = some.tolist()
    if not given:
        return None
    if own is None:
        shapes = build_network(graph.num_features, graph.num_outputs, settings).shapes()
        params = {name: np.empty(shape, dtype=settings.dtype) for name, shape in shapes.items()}
        lengths = [graph.num_features] * 2 * features + [graph.num_outputs] * 2 * targets
        transform = Transform(*(np.empty(length) for length in lengths)) if features else None
        own = InitialWeights(params, transform)
    for part in (*own.params.values(), *({} if own.transform is None else own.transform.arrays()).values()):
        distributed.broadcast(torch.from_numpy(part))  # in place
    return own


def divide_agents(deployment: Deployment, size: int) -> NDArray[np.int64]:
    """Divide the agents among ranks: return the rank of each [m].

    Ranks have about equal work, and agents that share edges are on one rank where possible. An agent's work is the
    number of its vertices' entries of D and of X and a part of that of its weights. The agents are put in an order in
    which neighbours are near each other (Cuthill and McKee 1969, "Reducing the bandwidth of sparse symmetric
    matrices"), and that order is cut.
    """
    m = deployment.num_agents
    graph = deployment.graph
    entries = np.diff(deployment.shift.tocsr().indptr)
    inputs = np.diff(graph.features.indptr) if sparse.issparse(graph.features) else graph.num_features
    work = np.bincount(deployment.assignment, entries + inputs, minlength=m) + deployment.network.num_parameters / 10
    order = sparse.csgraph.reverse_cuthill_mckee(sparse.csr_array(deployment.shared_edges), symmetric_mode=True)
    middle = np.cumsum(work[order]) - work[order] / 2
    hosting = np.zeros(m, dtype=np.int64)
    first = 0
    for rank in range(size):
        balanced = int(np.searchsorted(middle, work.sum() * (rank + 1) / size))
        end = min(max(balanced, first + 1), m - (size - rank - 1))  # no rank goes without an agent
        hosting[order[first:end]] = rank
        first = end
    return hosting
