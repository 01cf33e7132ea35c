"""Prediction at one agent after a run: its own vertices, and new ones, from the rows that its neighbours sent.

A forward pass of all agents gives every agent the rows of its neighbours (results.py keeps those of the run's end, and
serving.py asks for new ones). From them an agent computes the outputs of its vertices as in that pass, bit for bit; new
vertices are added to its share (agents/added_vertices.py).
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.agents.added_vertices import add_vertices
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.host import Host
from gossamer.agents.measures import evaluate
from gossamer.agents.share import Share
from gossamer.data.new_vertices import NewVertices, read_new_vertices
from gossamer.errors import GossamerError
from gossamer.generators import drive
from gossamer.model import Params
from gossamer.model.encoder import encode_features
from gossamer.peers.agent_folders import read_trained_shard
from gossamer.peers.evaluation import ReceivedRows
from gossamer.peers.local_requests import ask
from gossamer.peers.results import order_rows, read_neighbour_rows
from gossamer.peers.shards.sites import is_site, read_site_shard
from gossamer.peers.staged_work import read_handed
from gossamer.runs.encoders import read_encoder
from gossamer.runs.hosts import build_stage_host
from gossamer.runs.manifests import DataIdentity
from gossamer.runs.run import SHIFT_MARK
from gossamer.runs.run_json import read_manifest
from gossamer.runs.secret_files import SECRETS_FILE, read_secrets
from gossamer.runs.settings import Settings
from gossamer.runs.shares import find_agent_folder
from gossamer.runs.stages import ENCODER, GRAPH
from gossamer.runs.tensors import check_tensors, read_tensors, unpack_tensors


@dataclass(frozen=True)
class AgentPrediction:
    """Outputs of a network for vertices of one agent, in the units of its targets."""

    vertices: NDArray[np.int64]  # their numbers
    names: tuple[str, ...]  # as the data set has them, or the numbers
    outputs: Tensor  # [vertices(, time), outputs]
    identity: DataIdentity
    share: Share  # with targets and masks
    is_new: bool = False  # vertices that were not trained with, whose targets are not known

    def score(self) -> dict[str, tuple[str, float]]:
        """Accuracy, of labels of single decisions, or the mean squared error on each mask of the agent's vertices."""
        share, found, scores = self.share, self.outputs.numpy(), dict[str, tuple[str, float]]()
        actual = share.targets
        if share.task == "regression" and share.transform is not None:
            actual = share.transform.restore_outputs(torch.from_numpy(actual)).numpy()
        for name, mask in share.masks.items():
            if self.is_new or not mask.any():
                continue
            if share.task == "regression":
                scores[name] = "mse", float(np.square(found[mask] - actual[mask]).mean())
            else:
                decided = found.argmax(-1) if share.task == "multiclass" else found > 0
                scores[name] = "accuracy", float((decided[mask] == actual[mask]).mean())
        return scores


class TrainedAgent:
    """An agent after its run: its shard, and the weights that it has kept."""

    def __init__(self, folder: Path) -> None:
        """`folder` is that of the agent, or of its run."""
        inside = find_agent_folder(folder)
        self.shard, self.state = read_trained_shard(inside)
        self._agent = read_site_shard(inside).membership.agent if is_site(inside) else self.shard.membership.agent
        if not (self.state / "run.json").is_file():
            raise GossamerError(
                f"{folder}: the agent has not finished its run, or has left it before; see gossamer status {inside}"
            )

    @property
    def agent(self) -> int:
        """The agent by the number that it has kept, whatever the memberships of its run."""
        return self._agent

    @property
    def settings(self) -> Settings:
        return self.shard.settings

    @property
    def own_vertices(self) -> NDArray[np.int64]:
        return self.shard.share.vertices[self.shard.share.hosted]

    def make_host(self, new: NewVertices | None = None) -> tuple[Share, Host]:
        """The share, with new vertices, and its host with the kept weights."""
        share = self.shard.share
        handed = read_handed(self.state / ENCODER) if self.settings.encodes else None
        if new is not None:
            share, handed = self._add(share, handed, new)
        agent, step = self.shard.membership.agent, int(read_manifest(self.state).summary["best_step"])
        secrets = None if self.settings.public_randomness else read_secrets(self.state / SECRETS_FILE, [agent])
        host = build_stage_host(GRAPH, share, handed, self.settings, secrets)
        path = self.state / "weights.safetensors"
        weights = read_tensors(path)
        check_tensors(weights, {name: (part.dtype, tuple(part.shape)) for name, part in host.params.items()}, str(path))
        return share, replace(host, params=Params(weights), topologies=host.topologies[:1], step=step)

    def predict(self, rows: ReceivedRows | None = None, data: Path | None = None) -> AgentPrediction:
        """Outputs of the agent's own vertices, or of the new ones in `data`, from rows of its neighbours: the given
        ones, or those of the run's end."""
        new = None if data is None else read_new_vertices(data, self.own_vertices, self.shard.names)
        share, host = self.make_host(new)
        received = read_neighbour_rows(self.state) if rows is None else rows
        outputs, _ = drive(evaluate(host), Replay(received, self.state))
        found = outputs[host.full_pass.by_vertex]
        if share.transform is not None:
            found = share.transform.restore_outputs(found)
        identity = self.shard.identity or DataIdentity(name=self.settings.dataset, fingerprint="", task=share.task)
        count = len(self.own_vertices)
        if new is None:
            names = self.shard.names or tuple(map(str, self.own_vertices.tolist()))
            return AgentPrediction(self.own_vertices, names, found, identity, share)
        return AgentPrediction(new.vertices, new.names, found[count:], identity, share, is_new=True)

    def _add(
        self, share: Share, handed: NDArray[np.float64] | None, new: NewVertices
    ) -> tuple[Share, NDArray[np.float64] | None]:
        settings = self.settings
        if settings.privacy_spec is not None:
            raise GossamerError(
                "the network of a private run takes noisy sums over neighbours, which were made once, for the run's "
                "own vertices: new ones cannot be predicted"
            )
        if SHIFT_MARK in (self.shard.identity.fingerprint if self.shard.identity else ""):
            raise GossamerError("the run was trained with a D that was given: rows of new vertices are not known")
        if new.features.shape[1:] != share.features.shape[1:]:
            raise GossamerError(
                f"new vertices must have features {list(share.features.shape[1:])} as the run's, got "
                f"{list(new.features.shape[1:])}"
            )
        features = new.features
        if share.transform is not None:
            features = share.transform.apply_to_features(features, settings.dtype)
        known = np.concatenate([self.own_vertices, new.vertices])
        order = np.argsort(known)
        edges = order[np.searchsorted(known[order], new.edges)]
        extended = add_vertices(share, settings.shift_kind, features, edges, new.weights)
        if handed is None:
            return extended, None
        encoder = read_encoder(self.state, settings, share.num_classes or 1, 1)
        made = encode_features(features, {name: part[0] for name, part in encoder.items()})
        return extended, np.concatenate([handed, np.asarray(made, dtype=handed.dtype)])


@dataclass
class Replay:
    """Answers the exchanges of a forward pass with rows that were received before."""

    rows: ReceivedRows
    folder: Path
    number: int = 0

    def __call__(self, outbox: Outbox) -> Inbox:
        found = self.rows[self.number] if self.number < len(self.rows) else {}
        self.number += 1
        for link, shape in outbox.expected.items():
            part = found.get(link.sender)
            if part is None or tuple(part.shape) != tuple(shape) or not bool(torch.isfinite(part.double()).all()):
                raise GossamerError(
                    f"the stored rows of agent {link.sender} in {self.folder} do not fit the run; start all agents "
                    "with gossamer peer --serve, and predict again"
                )
        return {link: found[link.sender] for link in outbox.expected}


@dataclass(frozen=True)
class NeighbourRows:
    """The answer of a serving process."""

    rows: ReceivedRows
    seconds: float  # that the forward pass took


def ask_neighbours(state: Path, give_up: float) -> NeighbourRows | None:
    """Rows of the neighbours by a new forward pass of all agents, from the process that serves the run in this folder;
    None if none does."""
    found = ask(state, {"give_up": give_up}, give_up)
    if found is None:
        return None
    about, content = found
    if "waiting_for" in about:
        waits = ", ".join(map(str, about["waiting_for"])) or "another agent's neighbour"
        raise GossamerError(
            f"no forward pass in {about['seconds']:.0f} s: agent {waits} does not answer; start it with gossamer peer "
            "--serve, or predict with --alone"
        )
    return NeighbourRows(order_rows(unpack_tensors(content), "the answer"), float(about["seconds"]))
