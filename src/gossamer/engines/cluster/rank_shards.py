"""Shards for the ranks of a cluster: a run directory, cut beforehand, of which each rank reads its own part only.

run.json, network.safetensors, topology.json    as every run directory has them, and what was planned
rank-0, rank-1, ...                             the share of that rank's agents: share.safetensors and shard.json
"""

from pathlib import Path

from gossamer.agents.share import Share, make_share
from gossamer.data import DataGraph
from gossamer.engines.cluster import distributed
from gossamer.engines.cluster.job import check_same_run, divide_agents, make_engine, share_errors
from gossamer.engines.simulation import Simulation
from gossamer.errors import GossamerError, shown
from gossamer.runs import directory, new_folders
from gossamer.runs.deployment import Progress, make_deployment
from gossamer.runs.hosts import build_share_host, prepare_cut
from gossamer.runs.link_sequences import require_fixed_links
from gossamer.runs.manifests import RankManifest
from gossamer.runs.message_counts import between_hosts, count_messages, describe_deployment
from gossamer.runs.run import Run
from gossamer.runs.settings import Settings
from gossamer.runs.share_checks import take_share
from gossamer.runs.shares import MANIFEST, REMEDY, pack_share, pack_sizes, read_folder, write_folder


def is_cut(folder: Path) -> bool:
    """True if a folder was cut for ranks."""
    return (folder / "run.json").is_file() and (folder / "rank-0").is_dir()


def cut_for_ranks(
    folder: Path, graph: DataGraph, settings: Settings, size: int, progress: Progress | None = None
) -> list[int]:
    """Cut a data set for `size` ranks; return the number of vertices of each. The references, which need the whole
    graph, are left out."""
    if size > settings.agents:
        raise GossamerError(
            f"{size} ranks are more than {settings.agents} agents; cut for fewer, or give more --agents"
        )
    require_fixed_links(settings, "ranks")
    if settings.encodes:
        raise GossamerError(
            "shares for ranks are cut for one stage, and a run with an encoder or a privacy budget has several; "
            f"give the whole data set to the ranks: torchrun --nproc-per-node {size} -m gossamer cluster DATASET"
        )
    settings = settings.model_copy(update={"baselines": False}).fit_to(graph.task, graph.num_train_times)
    deployment = make_deployment(graph, settings, progress=progress)
    hosting = divide_agents(deployment, size)
    whole = prepare_cut(deployment, settings)
    held = []
    with new_folders.create_locked(folder):
        for rank in range(size):
            agents = (hosting == rank).nonzero()[0].tolist()
            share = make_share(whole, agents, hosting)
            about = {"rank": rank, "ranks": size, "agents": agents, **pack_sizes(share)}
            write_folder(folder / f"rank-{rank}", "share.safetensors", pack_share(share), about)
            held.append(len(share.targets))
        plan = describe_deployment(deployment)
        plan["messages"] = count_messages(deployment, settings)
        plan["between_ranks"] = between_hosts(deployment, settings, hosting)
        run = Run(settings, deployment, build_share_host(share, settings), graph.fingerprint(), Simulation(), plan=plan)
        directory.save_start(folder, run)
    return held


def read_rank_shard(folder: Path, rank: int, size: int, settings: Settings) -> Share:
    """The share of a rank's agents, checked: the file as its manifest says, every array as the planner expects it."""
    manifest, arrays = read_folder(folder, "share.safetensors", RankManifest)
    if (manifest.rank, manifest.ranks) != (rank, size):
        raise GossamerError(
            f"{folder} is not the shard of rank {rank} of {size}; cut it again with gossamer shard --ranks {size}"
        )
    agents, m = manifest.agents, manifest.num_agents
    if m != settings.agents or agents != sorted(set(agents)) or agents[-1] >= m:
        raise GossamerError(
            f"{folder / MANIFEST}: num_agents should be {settings.agents}, as in run.json, and agents ascending "
            f"numbers below it; found {m} and {shown(agents)}; {REMEDY}"
        )
    return take_share(arrays, agents, manifest, settings, None)


def start_on_shards(folder: Path, steps: int | None = None) -> Run:
    """This rank's part of a run directory that was cut for ranks, at its last checkpoint."""
    with share_errors():
        settings, fingerprint, plan = directory.read_plan(folder)
        if steps is not None:
            settings = settings.model_copy(update={"steps": steps})
        rank, size = distributed.own_rank(), distributed.num_ranks()
        mine = folder / f"rank-{rank}"
        cut_for = len(list(folder.glob(f"rank-*/{MANIFEST}")))
        if cut_for != size:
            raise GossamerError(
                f"{folder} was cut for {cut_for} ranks and {size} were started; start as many, or cut it again"
            )
        share = read_rank_shard(mine, rank, size, settings)
    check_same_run(settings, fingerprint)
    assert share.hosting is not None  # `take_share` requires it
    engine = make_engine(share.hosting, settings)
    host = build_share_host(share, settings)
    run = Run(settings, None, host, fingerprint, engine, plan=plan, share_transform=share.transform)
    return directory.restore_checkpoint(folder, run)
