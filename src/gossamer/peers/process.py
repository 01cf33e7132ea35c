"""A peer: one agent in a process of its own, trained with its neighbours over the network (Algorithm 1).

Leaves in its shard a folder for the run: `epoch` and checkpoints to come back from, `metrics.jsonl` (its sums for each
evaluation), `refused.jsonl` (what it refused), `weights.safetensors` (its own weights, [1, in, out] and so on), `done`
once it has finished and `all-done` once it knows that all have; a site's also `planned`, the shard that was planned.
"""

import gc
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gossamer.errors import GossamerError, naming
from gossamer.files import alone_in, make_private, remove_unfinished
from gossamer.peers.metrics import Records
from gossamer.peers.network.connections import allow_descriptors
from gossamer.peers.network.keys import read_key
from gossamer.peers.network.sockets import Refused, Sockets, public_of
from gossamer.peers.network.transport import Transport
from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.member import SILENCE, Member, longest_status
from gossamer.peers.protocol.signatures import UNSIGNED, Signatures, make_keyring
from gossamer.peers.protocol.wire import START
from gossamer.peers.refusals import COMMON, Refusals
from gossamer.peers.scheduling import taking_turns
from gossamer.peers.shards.membership import Membership
from gossamer.peers.shards.shard import Shard, max_step_gap, read_shard
from gossamer.peers.shards.sites import SiteShard, is_site, read_site_shard
from gossamer.peers.work import PlannedTraining, Training, Work

OWN_TIME = 1.0  # seconds of arithmetic after which others may have spoken unheard
Report = Callable[[dict[str, Any]], None]


class MissingNeighbour(GossamerError):  # noqa: N818
    """A neighbour has been silent for longer than the operator allows."""


class LeftEarly(GossamerError):  # noqa: N818
    """The agent has finished, and leaves before it knows that all have."""


@dataclass(frozen=True)
class Watch:
    """What the operator wants to know, and for how long a neighbour may be missing (None: for ever)."""

    report: Report = lambda state: None
    every: float = 0.5  # seconds between two reports
    give_up: float | None = None


def run_peer(folder: Path, watch: Watch, insecure: bool = False, listen: str | None = None) -> Path:
    """Train the agent of a shard until all agents have finished, and tell where its result lies; it may listen
    elsewhere than the others think."""
    shard = read_site_shard(folder) if is_site(folder) else read_shard(folder)
    membership = shard.membership
    secret = None if insecure else read_secret(folder, membership)
    signatures = UNSIGNED if secret is None else make_keyring(secret, membership.verify_keys, membership.agent)
    address = listen or membership.contact.address
    allow_descriptors()

    def connect(largest: int, on_refused: Refused) -> Transport:
        return Sockets(membership.agent, address, membership.neighbours, secret, largest, on_refused)

    train_over(connect, folder, shard, watch, signatures)
    return run_folder(folder, shard.membership)


def train_over(
    connect: Callable[[int, Refused], Transport],
    folder: Path,
    shard: Shard | SiteShard,
    watch: Watch,
    signatures: Signatures = UNSIGNED,
) -> None:
    """Train the agent of a shard over what `connect` makes for messages of at most so many bytes; agents that sign
    have encrypted links."""
    kept = run_folder(folder, shard.membership)
    make_private(kept)
    torch.set_num_threads(shard.settings.threads or 1)
    with alone_in(kept, f"trains the agent of {kept.parent}"), taking_turns():
        _train(connect, kept, shard, watch, signatures)


def _train(
    connect: Callable[[int, Refused], Transport],
    kept: Path,
    shard: Shard | SiteShard,
    watch: Watch,
    signatures: Signatures,
) -> None:
    remove_unfinished(kept)
    records, refusals = Records(kept / "metrics.jsonl"), Refusals(kept / "refused.jsonl")
    work: Work = Training(shard, kept, records) if isinstance(shard, Shard) else PlannedTraining(shard, kept, records)
    config = ProtocolConfig(
        shard.membership,
        shard.settings.torch_dtype,
        shard.settings.steps + work.first,
        work.keep,
        incarnation=secrets.randbits(62),
        max_step_gap=max_step_gap(shard.settings),
        encrypted=signatures is not UNSIGNED,
        signatures=signatures,
    )
    transport = connect(max(START + work.largest, longest_status(config)), refusals.note)
    try:
        member = Member(
            config,
            work.store,
            work.program,
            work.schedule,
            transport.send,
            time.monotonic(),
            lambda sender, refused: refusals.note(sender, refused.reason, refused.detail),
        )
        _drive(member, transport, records, refusals, watch, work.first)
    finally:
        transport.close()


def run_folder(folder: Path, membership: Membership) -> Path:
    """Where an agent keeps what belongs to the run of its shard, and to no other."""
    return folder / f"run-{membership.run}"


def read_secret(folder: Path, membership: Membership) -> str:
    """The agent's secret key, which must belong to the public key that its neighbours know."""
    path = folder / "key.secret"
    secret = read_key(path, "put the one that gossamer keys made there, or use --insecure on a network that you trust")
    with naming(path):
        public = public_of(secret)
    if membership.contact.key not in (None, public):  # a site may have been cut before its key was there
        raise GossamerError(
            f"{path} is not the key that agent {membership.agent}'s neighbours know; cut the shards again"
        )
    return secret


def _drive(
    member: Member, transport: Transport, records: Records, refusals: Refusals, watch: Watch, first: int
) -> None:
    """Messages in and out, until all agents are done and the neighbours have had time to hear of it."""
    gc.freeze()  # what is there by now stays: looking through it again and again would cost more than the protocol
    agent, reported = member.membership.agent, 0.0
    while True:
        read = time.monotonic()
        for sender, message in transport.receive(min(member.wake_at - read, watch.every)):
            member.receive(sender, message, time.monotonic())
        now = time.monotonic()
        member.tick(now)
        if now > read + watch.every + OWN_TIME:
            continue  # others may have spoken during this agent's own arithmetic: listen before anyone is given up
        leaves = member.leaves(now)
        if now >= reported + watch.every or leaves:
            watch.report(_state(member, transport, records, refusals, now, first))
            reported = now
        if leaves and member.all_done:
            return
        if leaves:
            raise LeftEarly(
                f"agent {agent} has finished and leaves, but has heard of nobody for {SILENCE:.0f} s and "
                f"not that agent {_listed(member.waiting_for)} has finished; if it has not, start both again"
            )
        missing = now - member.waiting_since
        if watch.give_up is not None and member.waiting_for and missing > watch.give_up:
            raise MissingNeighbour(
                f"agent {agent} has waited {missing:.0f} s for agent {_listed(member.waiting_for)} at "
                f"step {_training_step(member, first)}; see whether they run"
                f"{_refused_from(refusals, member.waiting_for)}"
            )


def _training_step(member: Member, first: int) -> int:
    return max(0, member.position[0] - first)


def _listed(agents: Sequence[int]) -> str:
    return ", ".join(map(str, agents))


def _refused_from(refusals: Refusals, agents: Sequence[int]) -> str:
    """What was refused of these agents' messages, but for what belongs to every recovery."""
    by_sender = refusals.by_sender()
    found = [
        f"{count} of agent {agent} as {reason}"
        for agent in agents
        for reason, count in by_sender.get(str(agent), {}).items()
        if reason not in COMMON
    ]
    return f"; refused {', '.join(found)}" if found else ""


def _state(
    member: Member, transport: Transport, records: Records, refusals: Refusals, now: float, first: int
) -> dict[str, Any]:
    """One report: where the agent stands and what it waits for."""
    return {
        "agent": member.membership.agent,
        "step": _training_step(member, first),
        "planning": member.position[0] < first,
        "epoch": member.epoch,
        "finished": member.finished,
        "all_done": member.all_done,
        "neighbours": list(member.membership.neighbours),
        "waiting_for": list(member.waiting_for),
        "waited": round(now - member.waiting_since, 1),
        "bytes_in": sum(transport.bytes_in.values()),
        "bytes_out": sum(transport.bytes_out.values()),
        "planned_bytes": dict(member.sent_bytes),
        "refused": dict(member.refused + transport.refused),
        "refused_from": refusals.by_sender(),
        "dropped": transport.dropped,
        "cpu_seconds": round(time.process_time(), 3),
        "metrics": records.last,
    }
