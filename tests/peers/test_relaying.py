"""What relays see and can do: agents in lock step, whose messages a test overhears, and changes on the way."""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from peers.harness import M, deployed, simulated

from gossamer.agents import Inbox, Link, Phase, training_step
from gossamer.agents.exchange import join_parts
from gossamer.agents.relays import Route
from gossamer.errors import GossamerError
from gossamer.generators import Returned, advance
from gossamer.peers.network.keys import make_agent_keys
from gossamer.peers.program import label_exchanges
from gossamer.peers.protocol.boxes import BrokenBoxError, Moment, SealedBoxes
from gossamer.peers.protocol.exchanges import PlannedExchange
from gossamer.peers.protocol.pads import PairKeys
from gossamer.peers.protocol.relaying import Relays
from gossamer.peers.protocol.signatures import derive_verify_key, make_keyring
from gossamer.peers.shards.shard import plan_agent_routes
from gossamer.runs.deployment import Deployment, make_deployment
from gossamer.runs.hosts import build_stage_host, cut_share
from gossamer.runs.settings import Settings
from gossamer.runs.stages import GRAPH

SECRETS = [make_agent_keys()[1] for _ in range(M)]
RUN, SESSION = "run", b"session"
Overhear = Callable[[PlannedExchange, Link, torch.Tensor], torch.Tensor]


def pair_keys(agent: int) -> PairKeys:
    return PairKeys(make_keyring(SECRETS[agent], [derive_verify_key(secret) for secret in SECRETS], agent), agent)


def train(
    deployment: Deployment,
    settings: Settings,
    overhear: Overhear = lambda planned, link, rows: rows,
    steps: int = 3,
    boxes: type[SealedBoxes] = SealedBoxes,
) -> dict[int, dict[str, torch.Tensor]]:
    """Every agent's weights after some steps; `overhear` sees every message, and gives what arrives."""
    routes, finals = plan_agent_routes(deployment, settings), {}

    def program(k: int) -> Generator[PlannedExchange, Inbox, None]:
        share = replace(cut_share(deployment, settings, [k]), routes=routes[k])
        host = build_stage_host(GRAPH, share, None, settings, None)
        relays = Relays(routes[k], host.torch_dtype, boxes(pair_keys(k), RUN, SESSION))
        for step in range(steps):
            host, _ = yield from relays.relay(label_exchanges("train", step, training_step(host)))
        finals[k] = host.params

    programs = [program(k) for k in range(M)]
    reached = [advance(one) for one in programs]
    while not any(isinstance(one, Returned) for one in reached):
        messages: dict[Link, torch.Tensor] = {}
        for planned in reached:
            assert not isinstance(planned, Returned)
            for link, rows in planned.outbox.messages.items():
                messages[link] = overhear(planned, link, join_parts(rows))
        expected = [planned.outbox.expected for planned in reached if not isinstance(planned, Returned)]
        assert {link for one in expected for link in one} == set(messages)
        reached = [
            advance(one, {link: messages[link].reshape(shape) for link, shape in expects.items()})
            for one, expects in zip(programs, expected, strict=True)
        ]
    return finals


def line(**changes: Any) -> tuple[Deployment, Settings]:
    return deployed(topology="line", lost_edges="relay", **changes)


@pytest.mark.parametrize("topology", ["line", "star", "ring"])
def test_agents_in_lock_step_equal_the_simulation(topology: str) -> None:
    deployment, settings = deployed(topology=topology, lost_edges="relay", steps=3)
    finals, expected = train(deployment, settings), simulated(deployment, settings)
    for k, params in finals.items():
        for name, part in params.items():
            torch.testing.assert_close(part[0], expected[name][k], rtol=0, atol=1e-12)


def of_other_numbers(deployment: Deployment, settings: Settings) -> tuple[Deployment, Settings]:
    """The same graph, assignment and split with other features and classes, and other initial weights."""
    random, graph = np.random.default_rng(1), deployment.graph
    features = random.standard_normal(graph.features.shape)
    settings = settings.model_copy(update={"seed": settings.seed + 1})
    other = replace(graph, features=features, targets=random.permutation(graph.targets))
    return make_deployment(other, settings, assignment=deployment.assignment), settings


@pytest.mark.parametrize(
    "changes", [{}, {"boundary_bits": 8}, {"layers": "gat", "heads": 2}, {"layers": "chebyshev", "order": 2}], ids=str
)
def test_what_a_relay_passes_on_depends_on_no_number(changes: dict[str, Any]) -> None:
    def overheard(deployment: Deployment, settings: Settings) -> tuple[list[tuple[Any, ...]], list[bytes]]:
        shapes, contents = [], []

        def overhear(planned: PlannedExchange, link: Link, rows: torch.Tensor) -> torch.Tensor:
            outbox = planned.outbox
            shapes.append((planned.plan, planned.step, str(outbox.phase), outbox.index, link, rows.dtype, rows.shape))
            if rows.dtype == torch.uint8 and 1 in link:
                contents.append(rows.numpy().tobytes())
            return rows

        train(deployment, settings, overhear)
        return shapes, contents

    one = line(**changes)
    other = of_other_numbers(*one)
    (shapes, contents), (other_shapes, other_contents) = overheard(*one), overheard(*other)
    assert shapes == other_shapes
    assert contents != other_contents


PATH, MOMENT, ROWS = (0, 1, 2), Moment(5, 3, 1, "train", Phase.FORWARD), bytes(range(80))


def boxes(agent: int, run: str = RUN, session: bytes = SESSION) -> SealedBoxes:
    return SealedBoxes(pair_keys(agent), run, session)


def test_only_the_ends_of_a_route_can_open_a_box() -> None:
    box = boxes(0).close(PATH, MOMENT, ROWS)
    assert len(box) == len(ROWS) + SealedBoxes.overhead
    assert not any(ROWS[i : i + 8] in box for i in range(0, len(ROWS), 8))
    assert boxes(2).open(PATH, MOMENT, box) == ROWS
    for other in (1, 3):
        with pytest.raises(BrokenBoxError):
            boxes(other).open(PATH, MOMENT, box)


@pytest.mark.parametrize(
    ("path", "moment", "run", "session"),
    [
        (PATH, MOMENT._replace(number=6), RUN, SESSION),
        (PATH, MOMENT._replace(step=4), RUN, SESSION),
        (PATH, MOMENT._replace(exchange=0), RUN, SESSION),
        (PATH, MOMENT._replace(plan="full"), RUN, SESSION),
        (PATH, MOMENT._replace(phase=Phase.BACKWARD), RUN, SESSION),
        ((0, 3, 2), MOMENT, RUN, SESSION),
        (PATH, MOMENT, "another run", SESSION),
        (PATH, MOMENT, RUN, b"another epoch"),
    ],
    ids=["number", "step", "exchange", "plan", "phase", "route", "run", "session"],
)
def test_a_box_opens_in_its_place_alone(path: Route, moment: Moment, run: str, session: bytes) -> None:
    box = boxes(0).close(PATH, MOMENT, ROWS)
    with pytest.raises(BrokenBoxError):
        boxes(2, run, session).open(path, moment, box)


def test_a_box_does_not_come_back_to_its_sender() -> None:
    box = boxes(0).close(PATH, MOMENT, ROWS)
    with pytest.raises(BrokenBoxError):
        boxes(0).open(PATH[::-1], MOMENT, box)


@pytest.mark.parametrize("kind", ["changed", "replayed", "emptied"])
def test_what_a_relay_does_to_a_box_ends_the_run_and_names_the_route(kind: str) -> None:
    deployment, settings = line()
    kept: list[torch.Tensor] = []

    def overhear(planned: PlannedExchange, link: Link, rows: torch.Tensor) -> torch.Tensor:
        outbox = planned.outbox
        if link != Link(1, 0) or outbox.phase is not Phase.FORWARD or outbox.index != 1:
            return rows  # round 1 of the first exchange: boxes of agent 2 that agent 1 passes on
        kept.append(rows.clone())
        if kind == "changed":
            rows[-1] ^= 1
        elif kind == "emptied":
            rows.zero_()
        elif planned.step:
            return kept[0]
        return rows

    with pytest.raises(
        GossamerError,
        match=r"agent 2 has not sealed for it: .* on the route 2 - 1 - 0; find out what runs at agent 1 and agent 2",
    ):
        train(deployment, settings, overhear)
    assert len(kept) == (2 if kind == "replayed" else 1)


@pytest.mark.parametrize(
    ("number", "reason"), [(1e30, "too large: 1.0e"), (np.nan, "not finite"), (-np.inf, "not finite")]
)
def test_a_box_of_numbers_that_nobody_sends_is_refused(number: float, reason: str) -> None:
    class Lies(SealedBoxes):
        def close(self, path: Route, moment: Moment, content: bytes) -> bytes:
            rows = np.frombuffer(content).copy()
            if path[0] == 2 and moment.step:
                rows[0] = number
            return super().close(path, moment, rows.tobytes())

    with pytest.raises(
        GossamerError, match=rf"agent 2 has sent agent 0 rows at step 1 \(forward\) that no .* sends \({reason}"
    ):
        train(*line(), boxes=Lies)
