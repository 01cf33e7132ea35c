"""Audits of runs with an encoder or a budget: an adversary who reads all that an agent received."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peers.harness import deployed, in_threads

import gossamer
from gossamer.agents.exchange import Phase
from gossamer.engines.simulation import run_together
from gossamer.errors import GossamerError
from gossamer.experiments.theory import draw_block_graph
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.protocol.exchanges import EpochExchanges
from gossamer.privacy.encoded import invert_encoding, view_encodings
from gossamer.privacy.recording import record_run
from gossamer.runs.recordings import EVALUATING

COMMON: dict[str, Any] = {"agents": 4, "topology": "complete", "steps": 12, "encoder_steps": 12, "evaluate_every": 3}
PRIVATE = "node:epsilon=4,delta=1e-5"


def test_the_rank_behind_an_encoder_is_its_width_however_long_the_training(tmp_path: Path) -> None:
    graph = draw_block_graph()  # 8 features
    plain = gossamer.audit(graph, **COMMON).to_dict()
    assert plain["rank"] == 8
    assert plain["attacks"]["features"]["found"] > 10
    folder = tmp_path / "run"
    gossamer.train(graph, out=folder, encoder=3, baselines=False, **COMMON)
    for found in (gossamer.audit(folder, graph=graph), gossamer.audit(graph, encoder=3, **{**COMMON, "steps": 20})):
        content = json.loads(json.dumps(found.to_dict()))
        assert content["rank"] == 3
        assert content["features"] == 8
        assert content["identifiable_vertices"] == 0
        assert content["attacks"]["features"]["found"] == 0
        assert content["attacks"]["features"]["tried"] == plain["attacks"]["features"]["tried"]
        assert content["encoder"]["width"] == 3
        assert content["encoder"]["found"] > 10  # of the encodings themselves
        assert content["attacks"]["labels"]["rate"] == 1.0  # backward rows are as before
        assert found.feature_attack is not None
        errors = [
            np.linalg.norm(one.decoded - np.asarray(one.original)) / np.linalg.norm(np.asarray(one.original))
            for one in found.feature_attack.reconstructions
            if one.decoded is not None
        ]
        assert 0.1 < np.median(errors) < 1.0  # a decoder sees something, and not everything


def test_all_rows_that_an_agent_received_lie_in_few_dimensions() -> None:
    """The first propagation's rows of every evaluation, solved for one vertex's features: rank R with an encoder."""
    result = gossamer.train("digits", encoder=5, baselines=False, **COMMON)
    deployment, settings = view_encodings(result.run.deployment, result.run.settings)
    recording = record_run(deployment, settings, (0,), settings.steps, run_together)
    rows = [m.content for m in recording.received if m.plan == EVALUATING and m.phase is Phase.FORWARD and m.index == 0]
    from_one = [content for content in rows if content.shape == rows[0].shape]
    stacked = torch.cat([content[:, :].double() for content in from_one], dim=1)  # [rows, evaluations x hidden]
    assert len(from_one) > 3
    assert int(torch.linalg.matrix_rank(stacked, rtol=1e-5)) <= 5


def test_an_encoding_as_wide_as_the_features_is_turned_back_up_to_rounding() -> None:
    random = np.random.default_rng(0)
    weight, bias, x = 0.3 * random.standard_normal((6, 6)), 0.1 * random.standard_normal(6), random.standard_normal(6)
    e = np.round(127 * np.tanh(x @ weight + bias)) / 127
    found = invert_encoding(e, weight, bias)
    assert found is not None
    assert np.abs(found - x).max() < 0.2
    few = invert_encoding(e[:3], weight[:, :3], bias[:3])
    assert few is not None
    assert np.abs(few - x).max() > 0.2


def test_a_private_run_reports_its_budget_and_bounds() -> None:
    found = gossamer.audit("digits", privacy=PRIVATE, canaries=40, **COMMON)
    content = json.loads(json.dumps(found.to_dict()))
    assert 3.9 < content["epsilon"] <= 4
    assert content["epsilon_exceeded"] < 4
    assert content["rank"] == 0
    assert content["identifiable_vertices"] == 0
    assert content["attacks"]["labels"]["tried"] == 21
    assert content["attacks"]["labels"]["rate"] < 0.7
    open_ = gossamer.audit("digits", privacy="node:epsilon=inf,delta=1e-5", **COMMON).to_dict()
    assert open_["epsilon"] is None
    assert open_["attacks"]["labels"]["rate"] > 0.8  # without noise the sums give labels away
    with pytest.raises(GossamerError, match="canaries bound the epsilon"):
        gossamer.audit("digits", canaries=40, **COMMON)
    with pytest.raises(GossamerError, match="--canaries N"):
        gossamer.audit("digits", privacy=PRIVATE, membership=4, **COMMON)


def test_over_sockets_a_private_peer_receives_noisy_sums_once_and_no_rows_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every message that an agent of a private run accepts, by what it is for."""
    deployment, settings = deployed(
        steps=6, encoder_steps=5, public_randomness=False, privacy="node:epsilon=4,delta=1e-5,noise=1.2", step_size=1.0
    )
    received: list[tuple[int, Phase, int, torch.Tensor]] = []
    advance = EpochExchanges.advance

    def note(self: EpochExchanges, inbox: Any) -> bool:
        received.extend((self.position[0], self.current.phase, self.current.index, part) for part in inbox.values())
        return advance(self, inbox)

    monkeypatch.setattr(EpochExchanges, "advance", note)
    assert in_threads(write_local_shards(tmp_path, deployment, settings)) == []
    sums = {Phase.MEASURES, Phase.SCORES}  # of weights, which are private already
    assert {phase for _, phase, _, _ in received} - sums == {Phase.FORWARD, Phase.CONSENSUS}
    rows = [(step, index, part) for step, phase, index, part in received if phase is Phase.FORWARD]
    assert {(step, index) for step, index, _ in rows} == {(5, 0)}  # between the two stages, one hop
    entries = deployment.shift.tocoo()
    a = deployment.assignment
    apart = a[entries.row] != a[entries.col]
    pairs = {(a[j], i) for i, j in zip(entries.row[apart].tolist(), entries.col[apart].tolist(), strict=True)}
    assert sum(len(part) for _, _, part in rows) == len(pairs)
    spec = settings.privacy_spec
    assert spec is not None
    noise = spec.split(5, 6).sums
    assert noise > 1
    spread = float(torch.cat([part.flatten() for _, _, part in rows]).std())
    assert spread > 0.9 * noise  # what a sum of unit rows adds to it is small
