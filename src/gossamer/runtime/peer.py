"""A peer: one agent in a process of its own, trained with its neighbours over the network (Algorithm 1).

Leaves in its shard a folder for the run: `epoch` and checkpoints to come back from, `metrics.jsonl` (its sums for each
evaluation), `refused.jsonl` (what it refused), `weights.safetensors` (its own weights, [1, in, out] and so on) and
`done` once it has finished.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gossamer.agents.host import Host, host_of_share, initial_params
from gossamer.errors import GossamerError
from gossamer.runtime.checkpoints import Disk
from gossamer.runtime.deployment import network_for, training_of
from gossamer.runtime.member import Member, Place, Program
from gossamer.runtime.program import begin, make_schedule
from gossamer.runtime.records import Records
from gossamer.runtime.refusals import Refusals
from gossamer.runtime.shards import Shard, neighbours_apart, read_shard
from gossamer.runtime.sockets import Sockets, public_of
from gossamer.runtime.tensors import write_tensors
from gossamer.runtime.wire import largest_header

Report = Callable[[dict[str, Any]], None]


class MissingNeighbour(GossamerError):  # noqa: N818
    """A neighbour has been silent for longer than the operator allows."""


@dataclass(frozen=True)
class Watch:
    """What the operator wants to know, and for how long a neighbour may be missing (None: for ever)."""

    report: Report = lambda state: None
    every: float = 0.5  # seconds between two reports
    give_up: float | None = None


def run_peer(folder: Path, watch: Watch, insecure: bool = False, listen: str | None = None) -> None:
    """Train the agent of a shard until all agents have finished; it may listen elsewhere than the others think."""
    shard = read_shard(folder)
    kept = state_of(folder, shard)
    kept.mkdir(exist_ok=True)
    torch.set_num_threads(shard.settings.threads or 1)
    secret = None if insecure else read_secret(folder, shard)
    host = host_of_shard(shard)
    schedule = make_schedule(host, shard.settings)
    largest = max(
        schedule.largest * shard.settings.torch_dtype.itemsize, largest_header(shard.share.num_agents, shard.keep)
    )
    refusals = Refusals(kept / "refused.jsonl")
    address = listen or shard.contact.address
    sockets = Sockets(shard.agent, address, shard.neighbours, secret, largest, refusals.note)
    try:
        disk = Disk(kept, shard.keep, host.params, host.state)
        records = Records(kept / "metrics.jsonl")

        def program(step: int) -> Program:
            yield from begin(host, shard.settings, disk, step, records.add)
            write_tensors(kept / "weights.safetensors", disk.load(shard.settings.steps)[0])

        member = Member(
            place_of(shard, sealed=not insecure),
            disk,
            program,
            schedule,
            sockets.send,
            time.monotonic(),
            lambda sender, refused: refusals.note(sender, refused.reason, refused.detail),
        )
        _drive(member, sockets, records, watch)
    finally:
        sockets.close()


def state_of(folder: Path, shard: Shard) -> Path:
    """Where an agent keeps what belongs to the run of its shard, and to no other."""
    return folder / f"run-{shard.run}"


def place_of(shard: Shard, sealed: bool) -> Place:
    settings = shard.settings
    return Place(
        shard.agent,
        shard.share.num_agents,
        tuple(shard.neighbours),
        shard.run,
        settings.torch_dtype,
        settings.steps,
        shard.keep,
        secrets.randbits(62),
        neighbours_apart(settings),
        sealed,
    )


def host_of_shard(shard: Shard) -> Host:
    """The host of one agent, from what its shard holds."""
    share, settings = shard.share, shard.settings
    outputs = share.num_classes if share.num_classes is not None else int(share.targets.shape[-1])
    network = network_for(int(share.features.shape[-1]), outputs, settings)
    params = initial_params(
        network,
        share.agents,
        settings.seed,
        settings.initial_deviation,
        settings.same_initial,
        settings.torch_dtype,
    )
    return host_of_share(share, network, training_of(settings), params)


def read_secret(folder: Path, shard: Shard) -> str:
    """The agent's secret key, which must belong to the public key that its neighbours know."""
    path = folder / "key.secret"
    try:
        secret = path.read_text().strip()
    except OSError as error:
        raise GossamerError(
            f"cannot read the secret key {path}: {error}; put the one that gossamer keys made there, or use --insecure "
            "on a network that you trust"
        ) from None
    if path.stat().st_mode & 0o077:
        raise GossamerError(f"{path} can be read by others; do: chmod 600 {path}")
    if public_of(secret) != shard.contact.key:
        raise GossamerError(f"{path} is not the key that agent {shard.agent}'s neighbours know; cut the shards again")
    return secret


def _drive(member: Member, sockets: Sockets, records: Records, watch: Watch) -> None:
    """Messages in and out, until all agents are done and the neighbours have had time to hear of it."""
    reported = 0.0
    while True:
        now = time.monotonic()
        leaves = member.leaves(now)
        if now >= reported + watch.every or leaves:
            watch.report(_state(member, sockets, records, now))
            reported = now
        if leaves:
            return
        missing = now - member.waiting_since
        if watch.give_up is not None and member.waiting_for and missing > watch.give_up:
            raise MissingNeighbour(
                f"agent {member.place.agent} has waited {missing:.0f} s for agent "
                f"{', '.join(map(str, member.waiting_for))} at step {member.position[0]}; see whether they run"
            )
        for sender, parts in sockets.receive(min(member.wake_at - now, watch.every)):
            member.receive(sender, parts, time.monotonic())
        member.tick(time.monotonic())


def _state(member: Member, sockets: Sockets, records: Records, now: float) -> dict[str, Any]:
    """One report: where the agent stands and what it waits for."""
    return {
        "agent": member.place.agent,
        "step": member.position[0],
        "epoch": member.epoch,
        "finished": member.finished,
        "all_done": member.all_done,
        "waiting_for": list(member.waiting_for),
        "waited": round(now - member.waiting_since, 1),
        "bytes_in": sum(sockets.bytes_in.values()),
        "bytes_out": sum(sockets.bytes_out.values()),
        "planned_bytes": dict(member.sent_bytes),
        "refused": dict(member.refused + sockets.refused),
        "dropped": sockets.dropped,
        "metrics": records.last,
    }
