"""Sites that pool nothing end with the weights of shards that were cut from the whole; their mistakes are told."""

import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peers.harness import M, deployed, in_threads, simulated
from peers.memory import Hub
from peers.processes import Agents, wait_until
from scipy import sparse

from gossamer.errors import GossamerError
from gossamer.peers.evaluation_log import EvaluationLog
from gossamer.peers.local_processes import find_free_ports
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.curve import make_curve_keys
from gossamer.peers.network.keys import make_agent_keys, write_secret
from gossamer.peers.process import PeerOptions, read_secret, run_peer, train_agent
from gossamer.peers.shards.sites import POOLED_SETTINGS, make_site_shard, read_site_shard, write_site_shard
from gossamer.peers.site_work import SiteWork
from gossamer.runs.deployment import Deployment, make_deployment
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import read_tensors

RUN = "apart"


def write_sites(folder: Path, deployment: Deployment, settings: Settings, **changes: str) -> list[Path]:
    """Write the data of every site of a deployment, and its site file."""
    keys, ports = [make_agent_keys() for _ in range(M)], find_free_ports(M)
    np.savetxt(folder / "C.csv", deployment.combination, delimiter=",", fmt="%.17g")
    alike = {k: v for k, v in settings.model_dump(exclude_unset=True).items() if k not in (*POOLED_SETTINGS, "agents")}
    paths = []
    for k in range(M):
        site = folder / f"site-{k}"
        site.mkdir()
        _write_arrays(site / "data.npz", deployment, k)
        write_secret(site / "key.secret", keys[k][1])
        given: dict[str, Any] = {
            "run": f'"{RUN}"',
            "agent": k,
            "address": f'"127.0.0.1:{ports[k]}"',
            "secret": '"key.secret"',
            "data": '"data.npz"',
            "classes": deployment.graph.num_classes,
            **changes,
        }
        lines = [f"{name} = {value}" for name, value in given.items()]
        lines += ["[settings]", f"agents = {M}"]
        lines += [f"{name} = {_toml(value)}" for name, value in alike.items()]
        lines += ["[neighbours]"]
        lines += [
            f'{z} = {{ address = "127.0.0.1:{ports[z]}", key = "{keys[z][0]}" }}'
            for z in np.flatnonzero(deployment.links[k])
            if z != k
        ]
        lines += ["[members]"]
        lines += [f'{z} = "{keys[z][0]}"' for z in range(M) if z != k and not deployment.links[k, z]]
        (site / "site.toml").write_text("\n".join(lines) + "\n")
        paths.append(site / "site.toml")
    return paths


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(list(value) if isinstance(value, tuple) else value)


def _write_arrays(path: Path, deployment: Deployment, k: int) -> None:
    graph, owner = deployment.graph, deployment.assignment
    own = np.flatnonzero(owner == k)
    touching = (owner[graph.edges] == k).any(1)
    others = np.setdiff1d(graph.edges[touching], own)
    features = sparse.csr_array(graph.features[own])
    np.savez(
        path,
        vertices=own,
        targets=graph.targets[own],
        edges=graph.edges[touching],
        weights=graph.weights[touching],
        owners=np.stack([others, owner[others]], 1),
        **{name: getattr(graph, name)[own] for name in ("train", "validation", "test")},
        **{f"features.{part}": getattr(features, part) for part in ("data", "indices", "indptr", "shape")},
    )


def shards_of(paths: list[Path], out: Path) -> list[Path]:
    """Make the shards as `gossamer shard --site` does at every site."""
    folders = []
    for path in paths:
        shard, secret = make_site_shard(path)
        folders.append(out / f"agent-{shard.membership.agent}")
        write_site_shard(folders[-1], shard)
        write_secret(folders[-1] / "key.secret", secret or "")
    return folders


def over(hub: Hub) -> Any:
    def run(folder: Path, watch: PeerOptions) -> None:
        shard = read_site_shard(folder)
        own = shard.membership
        train_agent(lambda largest, _: hub.open(own.agent, own.neighbours, largest), folder, shard, watch)

    return run


def check(folders: list[Path], expected: dict[str, torch.Tensor]) -> None:
    for k, folder in enumerate(folders):
        found = read_tensors(folder / f"run-{RUN}" / "weights.safetensors")
        for name, part in expected.items():
            torch.testing.assert_close(found[name][0], part[k], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "changes",
    [
        {"update": "momentum"},
        {"layers": "chebyshev", "order": 2, "step_size": 0.02, "dropout": 0.3},
        {"update": "adam", "step_size": 0.01, "consensus_every": 3, "mixing": "uniform"},
        {"layers": "gat", "heads": 2, "attention_dropout": 0.3, "residual": True, "norm": "layer", "steps": 15},
        {"layers": "sage", "hidden": "8x2", "jump": "cat", "steps": 15},
        {"layers": "gin", "step_size": 0.01, "steps": 15},
        {"layers": "gated/gatv2/sage:aggregate=max", "dropout": 0.3, "steps": 15},
        {"layers": "appnp", "order": 3, "step_size": 0.05, "steps": 15},
    ],
    ids=str,
)
def test_sites_end_with_the_weights_of_the_whole(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = deployed(**changes)
    given = {"combination": '"../C.csv"'} if "mixing" in changes else {}
    folders = shards_of(write_sites(tmp_path, deployment, settings, **given), tmp_path / "shards")
    assert in_threads(folders, run=over(Hub())) == []
    check(folders, simulated(deployment, settings))


def with_labels(deployment: Deployment, settings: Settings) -> Deployment:
    """The same deployment with three labels in place of the classes."""
    graph = deployment.graph
    labels = np.stack([graph.targets == 0, graph.targets != 1, graph.features[:, 0] > 0], axis=1)
    return make_deployment(replace(graph, targets=labels), settings, assignment=deployment.assignment)


def test_sites_with_several_labels_a_vertex_end_with_the_weights_of_the_whole(tmp_path: Path) -> None:
    deployment, settings = deployed(update="momentum", steps=20)
    deployment = with_labels(deployment, settings)
    paths = write_sites(tmp_path, deployment, settings, task='"multilabel"')
    folders = shards_of(paths, tmp_path / "shards")
    assert read_site_shard(folders[0]).data.task == "multilabel"
    assert in_threads(folders, run=over(Hub())) == []
    check(folders, simulated(deployment, settings))


def test_sites_must_agree_on_the_task(tmp_path: Path) -> None:
    deployment, settings = deployed(steps=2)
    (tmp_path / "labels").mkdir()
    paths = write_sites(tmp_path, deployment, settings)
    others = write_sites(tmp_path / "labels", with_labels(deployment, settings), settings, task='"multilabel"')
    classes, labels = (make_site_shard(path)[0].site.terms for path in (paths[0], others[0]))
    assert classes != labels
    assert classes == labels.replace("multilabel", "multiclass")


def test_sample_weights_of_a_site_are_in_its_shard(tmp_path: Path) -> None:
    deployment, settings = deployed(steps=2)
    path = write_sites(tmp_path, deployment, settings)[0]
    with np.load(path.parent / "data.npz") as file:
        arrays = dict(file)
    weights = np.arange(len(arrays["vertices"])) / 7
    np.savez(path.parent / "data.npz", **arrays, sample_weights=weights)
    (folder,) = shards_of([path], tmp_path / "shards")
    np.testing.assert_array_equal(read_site_shard(folder).data.sample_weights, weights)


def train_with_deaths(folders: list[Path]) -> None:
    """Two sites die and start again: one before it has planned, or just after, the other while it trains."""
    kept = [folder / f"run-{RUN}" for folder in folders]
    with Agents(folders) as agents:
        agents.start_all()
        wait_until((kept[1] / "epoch").exists, "the first epoch opens")
        agents.signal(1, signal.SIGKILL)
        agents.wait_killed(1)
        agents.start(1)
        wait_until((kept[2] / "checkpoint-40.safetensors").exists, "the training goes on")
        agents.signal(2, signal.SIGKILL)
        agents.wait_killed(2)
        agents.start(2)
        agents.wait_finished()


def test_sites_over_the_network_survive_a_death_while_they_plan_and_after(tmp_path: Path) -> None:
    deployment, settings = deployed(steps=200, checkpoint_every=20, evaluate_every=100)
    folders = shards_of(write_sites(tmp_path, deployment, settings), tmp_path / "shards")
    train_with_deaths(folders)
    check(folders, simulated(deployment, settings))


def test_a_site_knows_its_own_features_and_labels_alone(tmp_path: Path) -> None:
    deployment, settings = deployed(steps=2)
    folders = shards_of(write_sites(tmp_path, deployment, settings), tmp_path / "shards")
    assert in_threads(folders, run=over(Hub())) == []
    for k, folder in enumerate(folders):
        others = deployment.graph.features[deployment.assignment != k]
        for path in (folder / "site.safetensors", folder / f"run-{RUN}" / "planned" / "share.safetensors"):
            stored = np.concatenate([t.numpy().reshape(-1) for t in read_tensors(path).values()])
            assert not np.isin(others.reshape(-1), stored).any()


def test_sites_that_disagree_end_with_an_error_that_names_the_neighbour(tmp_path: Path) -> None:
    deployment, settings = deployed()
    paths = write_sites(tmp_path, deployment, settings)
    paths[1].write_text(paths[1].read_text().replace("hidden = [8]", "hidden = [9]"))
    failures = in_threads(shards_of(paths, tmp_path / "shards"), PeerOptions(give_up=5), run=over(Hub()))
    assert any("cannot train with agent 1, which has other settings or classes" in str(one) for one in failures)


def test_a_site_without_a_key_runs_insecure_only(tmp_path: Path) -> None:
    paths = write_sites(tmp_path, *deployed())
    paths[0].write_text(paths[0].read_text().replace('secret = "key.secret"\n', ""))
    shard, secret = make_site_shard(paths[0])
    assert secret is None
    write_site_shard(tmp_path / "agent-0", shard)
    with pytest.raises(GossamerError, match="cannot read the secret key"):
        run_peer(tmp_path / "agent-0", PeerOptions())


def test_a_key_that_others_can_read_is_refused_when_the_shard_is_made(tmp_path: Path) -> None:
    path = write_sites(tmp_path, *deployed())[0]
    (path.parent / "key.secret").chmod(0o640)
    with pytest.raises(GossamerError, match=r"key\.secret can be read by others; do: chmod 600"):
        make_site_shard(path)


def test_a_key_that_is_put_into_the_shard_later_is_used(tmp_path: Path) -> None:
    paths = write_sites(tmp_path, *deployed())
    paths[0].write_text(paths[0].read_text().replace('secret = "key.secret"\n', ""))
    shard, secret = make_site_shard(paths[0])[0], make_curve_keys()[1]
    write_site_shard(tmp_path / "agent-0", shard)
    write_secret(tmp_path / "agent-0" / "key.secret", secret)
    assert read_secret(tmp_path / "agent-0", shard.membership) == secret
    other = replace(shard.membership, contact=Contact("127.0.0.1:1", make_curve_keys()[0]))
    with pytest.raises(GossamerError, match="is not the key that agent 0's neighbours know"):
        read_secret(tmp_path / "agent-0", other)


def test_a_plan_of_other_data_is_not_trained_on(tmp_path: Path) -> None:
    """The run's folder stays where a shard was made anew from changed data."""
    folders = shards_of(write_sites(tmp_path, *deployed(steps=2)), tmp_path / "shards")
    assert in_threads(folders, run=over(Hub())) == []
    shard = read_site_shard(folders[0])
    moved = replace(shard, membership=replace(shard.membership, contact=Contact("127.0.0.1:1", None)))
    write_site_shard(folders[0], moved)
    SiteWork(moved, folders[0] / f"run-{RUN}", EvaluationLog(tmp_path / "metrics.jsonl"))  # addresses may change
    for changed in (
        replace(shard, data=replace(shard.data, features=2 * shard.data.features)),
        replace(shard, settings=shard.settings.model_copy(update={"steps": 3})),
    ):
        write_site_shard(folders[0], changed)
        with pytest.raises(GossamerError, match="belongs to other data or settings"):
            over(Hub())(folders[0], PeerOptions(give_up=5))


def test_who_plans_anew_comes_back_without_its_old_plan(tmp_path: Path) -> None:
    """Else one that dies while all plan again would train on what the others have left."""
    folders = shards_of(write_sites(tmp_path, *deployed(steps=2)), tmp_path / "shards")
    assert in_threads(folders, run=over(Hub())) == []
    shard, kept = read_site_shard(folders[0]), folders[0] / f"run-{RUN}"
    work = SiteWork(shard, kept, EvaluationLog(tmp_path / "metrics.jsonl"))
    assert work.store.steps() == [0, 1, 3]
    next(work.program(0, b""))
    assert work.store.steps() == [0]
    assert SiteWork(shard, kept, EvaluationLog(tmp_path / "metrics.jsonl")).store.steps() == [0]


def test_sites_without_a_training_example_are_told(tmp_path: Path) -> None:
    deployment, settings = deployed()
    (topology,) = deployment.topologies
    unlabelled = replace(topology, graph=replace(topology.graph, train=np.zeros_like(topology.graph.train)))
    paths = write_sites(tmp_path, replace(deployment, topologies=(unlabelled,)), settings)
    failures = in_threads(shards_of(paths, tmp_path / "shards"), PeerOptions(give_up=20), run=over(Hub()))
    assert len(failures) == M
    assert all("no site has a training example" in str(one) for one in failures)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('run = "apart"', 'run = "a b"', "run must be up to 64 letters"),
        ('run = "apart"\n', "", "has no run; a site file needs run, agent"),
        ("agent = 0", "agent = 7", "agent must be 0 to 3"),
        ("agent = 0", "agent = true", "agent must be a whole number, got True"),
        ("agent = 0", "agnet = 0", "has no agent"),
        ("agent = 0", "agent = 0\nport = 1", "unknown key 'port'"),
        ("[settings]", '[settings]\ndataset = "cora"', "dataset is for data in one place"),
        ("[settings]", "[settings]\nsplit = 2", "split is for data in one place"),
        ("agents = 4\n", "", "settings must have agents"),
        ("[settings]", '[settings]\nscore = "r2"', r"\.toml: the score 'r2' does not fit the targets"),
        ("[neighbours]", "[neighbours]\n9 = 3", "neighbours are numbered 0 to 3 without 0"),
        ("[neighbours]", "[neighbours]\n2 = 3", "neighbour 2 must be"),
        ("classes = 3", "classes = 2", "classes must be numbered 0 to 1"),
        ("classes = 3\n", "", "name all sites' classes"),
        ('secret = "key.secret"', 'secret = "nowhere"', "cannot read the secret key"),
        ('data = "data.npz"', 'data = "nowhere"', "expected a folder of CSV tables or an .npz file"),
        ("classes = 3", 'classes = 3\ncombination = "data.npz"', "cannot read C from"),
        ("agent = 0", "agent = ", "not valid TOML"),
        ("classes = 3", "classes = 10000000000", "classes must be 2 to"),
        ("classes = 3", 'classes = ["a", "b", "a"]', "different names"),
        ("classes = 3", "classes = 1", r'classes must be 2 to .*task = "multilabel"'),
        (
            "classes = 3",
            'classes = 3\ntask = "labels"',
            "task must be multiclass, multilabel or regression, got 'labels'",
        ),
        ("classes = 3", 'task = "multilabel"', "the task multilabel needs classes"),
        ("classes = 3", 'classes = 3\ntask = "regression"', "the task regression has no classes"),
        ("classes = 3", 'classes = 3\ntask = "multilabel"', r"labels must be a table \[vertices, labels\]"),
        ("[settings]", '[settings]\ntask = "multiclass"', "task stands beside classes"),
        ("[neighbours]", "[neighbours]\n'²' = 3", "neighbours are numbered"),
        ('address = "127.0.0.1:', 'address = "a b:', "expected an address host:port"),
        ("[members]", "[members]\n9 = 3", "members are numbered 0 to 3"),
        ("[members]", "[members]\n3 = 3", "member 3: 3 is not a public key of 80 characters"),
        ("[members]\n2", '[members]\n"2_"', "members are numbered 0 to 3, got '2_'"),
    ],
)
def test_a_site_file_that_does_not_fit_is_told(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write_sites(tmp_path, *deployed())[0]
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(GossamerError, match=message):
        make_site_shard(path)


def test_a_row_of_c_must_fit_the_neighbours_and_sum_to_one(tmp_path: Path) -> None:
    path = write_sites(tmp_path, *deployed(), combination='"../C.csv"')[0]
    for row, message in (
        ("0.5,0.25,0.25,0", "mixes with agent 2, which is not a neighbour of agent 0"),
        ("0.5,0.25,0,0.5", "must sum to 1"),
        ("0.5,0.5", "must hold C, 4 x 4, or row 0 of it"),
        ("0,0.5,0,0.5", "must not be 0 on its diagonal"),
    ):
        (tmp_path / "C.csv").write_text(row + "\n")
        with pytest.raises(GossamerError, match=message):
            make_site_shard(path)


def test_an_edge_to_a_stranger_is_told(tmp_path: Path) -> None:
    path = write_sites(tmp_path, *deployed())[0]
    lines = [line for line in path.read_text().splitlines() if not line.startswith("1 = {")]
    path.write_text("\n".join(lines))
    with pytest.raises(GossamerError, match="edges lead to agent 1, which is not a neighbour"):
        make_site_shard(path)


def test_neighbours_that_share_a_key_or_an_address_are_told(tmp_path: Path) -> None:
    path = write_sites(tmp_path, *deployed())[0]
    text = path.read_text()
    for pattern, what in ((r'key = "([^"]*)"', "key"), (r'address = "([^"]*)"', "address")):
        one, other = re.findall(pattern, text)[-2:]
        path.write_text(text.replace(other, one))
        with pytest.raises(GossamerError, match=f"two agents have the {what}"):
            make_site_shard(path)


def test_a_site_needs_the_keys_of_all_members(tmp_path: Path) -> None:
    path = write_sites(tmp_path, *deployed())[0]
    text, keys = path.read_text(), re.findall(r'"([^"]{80})"', path.read_text())
    path.write_text(text[: text.index("[members]")])
    with pytest.raises(GossamerError, match=r"has no key of agent 2; .* add a table \[members\] with 2 ="):
        make_site_shard(path)
    path.write_text(text + f'1 = "{keys[1]}"\n')
    with pytest.raises(GossamerError, match="member 1 has another key than the one given for agent 1"):
        make_site_shard(path)
    path.write_text(text.replace(keys[2], keys[0]))
    with pytest.raises(GossamerError, match="two agents have the same verify key"):
        make_site_shard(path)
    path.write_text(text.replace(keys[0], keys[0][:40]))
    with pytest.raises(GossamerError, match="neighbour 1: this public key has no verify key yet; print it whole"):
        make_site_shard(path)
    path.write_text(re.sub(r', key = "[^"]*"', "", text[: text.index("[members]")]))
    assert make_site_shard(path)[0].membership.verify_keys[1:] == (None, None, None)  # which runs insecure only


def test_settings_that_differ_where_it_does_not_matter_are_alike(tmp_path: Path) -> None:
    """Threads are a site's own business; the number of steps is not."""
    path = write_sites(tmp_path, *deployed())[0]
    terms = make_site_shard(path)[0].site.terms
    text = path.read_text()
    path.write_text(text.replace("agents = 4", "agents = 4\nthreads = 1"))
    assert make_site_shard(path)[0].site.terms == terms
    path.write_text(text.replace("agents = 4", "agents = 4\nseed = 1"))
    assert make_site_shard(path)[0].site.terms != terms
