"""What is recorded of a curious agent are the messages that its peer receives over sockets, and no others."""

import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from peers.harness import deployed, in_threads
from privacy.small import deploy

from gossamer.agents.exchange import Phase
from gossamer.engines.simulation import run_together
from gossamer.peers import shard_work
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.program import train_from
from gossamer.privacy.knowledge import find_knowledge
from gossamer.privacy.recording import record_run
from gossamer.privacy.tracing import trace_weights
from gossamer.runs.hosts import build_host


@pytest.mark.parametrize(
    "changes", [{"update": "momentum", "dropout": 0.5}, {"update": "adam", "keep": "best", "boundary_bits": 8}], ids=str
)
def test_recorded_messages_are_those_that_a_peer_receives_over_sockets(
    tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment, settings = deployed(steps=3, evaluate_every=2, measure="end", **changes)
    received: list[tuple[Any, torch.Tensor]] = []
    lock = threading.Lock()

    def listen(host: Any, *rest: Any) -> Generator[Any, Any, Any]:
        program: Any = train_from(host, *rest)
        inbox = None
        while True:
            try:
                planned = program.send(inbox)
            except StopIteration as done:
                return done.value
            inbox = yield planned
            if host.agents == (1,):
                plan, step, outbox = planned
                with lock:
                    received.extend(
                        ((plan, step, outbox.phase, outbox.index, link), inbox[link].clone())
                        for link in outbox.expected
                    )

    monkeypatch.setattr(shard_work, "train_from", listen)
    assert in_threads(write_local_shards(tmp_path, deployment, settings)) == []
    recording = record_run(deployment, settings, (1,), settings.steps, run_together)
    recorded = [((m.plan, m.step, m.phase, m.index, m.link), m.content) for m in recording.received]
    if changes.get("keep") != "best":  # their scores are not simulated: nothing depends on them
        received = [(key, content) for key, content in received if key[2] is not Phase.SCORES]
    assert [key for key, _ in recorded] == [key for key, _ in received]
    assert len(recorded) > 20
    for (_, ours), (_, theirs) in zip(recorded, received, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("changes", [{}, {"mix_first": True}, {"update": "gd", "consensus_every": 2}], ids=str)
def test_weights_are_traced_exactly_where_all_that_are_mixed_are_heard(changes: dict[str, Any]) -> None:
    deployment, settings = deploy(steps=5, **changes)
    knowledge = find_knowledge(settings)
    recording = record_run(deployment, settings, (0,), 5, run_together)
    everyone = record_run(deployment, settings, range(4), 5, run_together).own
    traced = trace_weights(recording, deployment, settings, knowledge, (0,), [1, 2, 3], 5)
    every = settings.consensus_every
    last = 4 if settings.mix_first else 5
    steps = {t for t in range(last + 1) if t % every == 0 or (settings.mix_first and (t + 1) % every == 0)}
    assert {t for _, t in traced} == steps
    for (z, t), found in traced.items():
        assert found.exact
        for name, part in found.params.items():
            torch.testing.assert_close(part, everyone[z, t][name], rtol=0, atol=1e-12)


def test_on_a_ring_weights_are_known_up_to_the_disagreement() -> None:
    deployment, settings = deploy(steps=4, topology="ring", agents=4, update="gd")
    knowledge = find_knowledge(settings)
    recording = record_run(deployment, settings, (0,), 4, run_together)
    everyone = record_run(deployment, settings, range(4), 4, run_together).own
    traced = trace_weights(recording, deployment, settings, knowledge, (0,), [1], 4)
    near, true = traced[1, 4].params["layer.0.weight"], everyone[1, 4]["layer.0.weight"]
    spread = max(float((everyone[z, 4]["layer.0.weight"] - true).abs().max()) for z in range(4))
    assert not traced[1, 4].exact
    assert 0 < float((near - true).abs().max()) <= 2 * spread


def test_a_recorded_run_is_the_run_itself() -> None:
    deployment, settings = deploy(steps=3)
    recording = record_run(deployment, settings, (2,), 3, run_together)
    start = build_host(deployment, settings, agents=(2,)).params["layer.0.weight"][0]
    torch.testing.assert_close(recording.own[2, 0]["layer.0.weight"], start, rtol=0, atol=0)
    assert {m.link.receiver for m in recording.received} == {2}
    assert {m.link.sender for m in recording.sent} == {2}
