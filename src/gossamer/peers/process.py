"""A peer: one agent in a process of its own, trained with its neighbours over the network (Algorithm 1).

Leaves in its shard a folder for the run: `epoch` and checkpoints to recover from, `secrets.json` (its secret, which
decides dropout masks and quantisation noise), `evaluations.jsonl` (its sums for each evaluation, and what it knows of
all agents'), `refused.jsonl` (the refusal log), `recorded` (received messages, if it records), `done` once it has
finished and `all-done` once it knows that all have; a site's also `planned`, the shard that was planned. When it has
finished, the folder is a run directory (results.py).
"""

import gc
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from gossamer.errors import GossamerError
from gossamer.files import lock_folder, make_private, remove_unfinished
from gossamer.machine import raise_descriptor_limit
from gossamer.peers.agent_folders import EVALUATIONS_FILE, run_folder
from gossamer.peers.evaluation_log import EvaluationLog
from gossamer.peers.network.keys import read_key
from gossamer.peers.network.sockets import OnRefused, Sockets, derive_public_key
from gossamer.peers.network.transport import Transport
from gossamer.peers.prediction import TrainedAgent
from gossamer.peers.progress import (
    PeerReport,
    ProgressLog,
    join_numbers,
    make_report,
    training_step_of,
    write_status,
)
from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.exchanges import Program
from gossamer.peers.protocol.member import ISOLATION_TIMEOUT, Member
from gossamer.peers.protocol.signatures import UNSIGNED, Signatures, make_keyring
from gossamer.peers.protocol.statements import max_status_bytes
from gossamer.peers.protocol.wire import PAYLOAD_OFFSET, RefusedError, is_of_run
from gossamer.peers.refusals import RECOVERY_REASONS, RefusalLog
from gossamer.peers.scheduling import batch_scheduling
from gossamer.peers.serving import Server, name_serving
from gossamer.peers.shard_work import Work
from gossamer.peers.shards.membership import Membership
from gossamer.peers.shards.shard import Shard, max_step_gap, read_shard
from gossamer.peers.shards.sites import SiteShard, is_site, read_site_shard
from gossamer.peers.site_work import SiteWork
from gossamer.peers.staged_work import make_work

BUSY_SECONDS = 1.0  # after which a turn of the loop counts as arithmetic, during which messages may wait unread
DESCRIPTOR_LIMIT = 1 << 14  # ZeroMQ accepts about a thousand connections before the monitor has handled them
Connect = Callable[[int, OnRefused], Transport]  # makes a transport for messages of at most so many bytes
_logger = logging.getLogger(__name__)


class MissingNeighbourError(GossamerError):
    """A neighbour has been silent for longer than the operator allows."""


class LeftEarlyError(GossamerError):
    """The agent has finished, and leaves before it knows that all have."""


@dataclass(frozen=True)
class PeerOptions:
    """Reports that the operator wants, the time after which a missing neighbour ends the process, and recording."""

    on_report: Callable[[PeerReport], None] = lambda report: None
    report_every: float = 0.5  # seconds
    give_up: float | None = None  # seconds; None: never
    record: bool = False  # messages, for an audit
    serve: bool = False  # stay for inference when all agents have finished
    on_finished: Callable[[Path], None] = lambda folder: None  # takes the run directory, before the agent serves


def run_peer(folder: Path, options: PeerOptions, insecure: bool = False, listen: str | None = None) -> Path:
    """Train the agent of a shard until all agents have finished, and return the folder of its result.

    `listen` is an address to listen on, if it is another than the one that the neighbours connect to.
    """
    shard = read_site_shard(folder) if is_site(folder) else read_shard(folder)
    membership = shard.membership
    secret = None if insecure else read_secret(folder, membership)
    signatures = UNSIGNED if secret is None else make_keyring(secret, membership.verify_keys, membership.agent)
    address = listen or membership.contact.address
    raise_descriptor_limit(DESCRIPTOR_LIMIT)

    def connect(max_bytes: int, on_refused: OnRefused) -> Transport:
        sockets = Sockets(membership.agent, address, membership.neighbours, secret, max_bytes, on_refused)
        _logger.info("agent %d listens on %s%s", membership.agent, address, " without encryption" * (secret is None))
        return sockets

    train_agent(connect, folder, shard, options, signatures)
    return run_folder(folder, membership)


def train_agent(
    connect: Connect, folder: Path, shard: Shard | SiteShard, options: PeerOptions, signatures: Signatures = UNSIGNED
) -> None:
    """Train the agent of a shard over the transport that `connect` makes; agents that sign have encrypted links."""
    state_folder = run_folder(folder, shard.membership)
    make_private(state_folder)
    torch.set_num_threads(shard.settings.threads or 1)
    with lock_folder(state_folder, f"trains the agent of {state_folder.parent}"), batch_scheduling():
        _train(connect, state_folder, shard, options, signatures)


def _train(
    connect: Connect, folder: Path, shard: Shard | SiteShard, options: PeerOptions, signatures: Signatures
) -> None:
    agent = shard.membership.agent
    remove_unfinished(folder)
    log, refusals = EvaluationLog(folder / EVALUATIONS_FILE), RefusalLog(folder / "refused.jsonl", agent)
    work: Work
    if isinstance(shard, Shard):
        work = make_work(shard, folder, log, signatures, options.record)
    else:
        work = SiteWork(shard, folder, log, signatures, options.record)
    config = ProtocolConfig(
        shard.membership,
        shard.settings.torch_dtype,
        work.steps,
        work.keep,
        incarnation=secrets.randbits(62),
        max_step_gap=max_step_gap(shard.settings),
        encrypted=signatures is not UNSIGNED,
        signatures=signatures,
    )

    def begin(step: int, session: bytes) -> Program:
        epoch = work.store.epoch()
        if step < work.first:
            _logger.info("agent %d: epoch %d, planning with the other sites", agent, epoch)
        else:
            _logger.info("agent %d: epoch %d, training from step %d", agent, epoch, step - work.first)
        return work.program(step, session)

    def refuse(sender: int, refused: RefusedError) -> None:
        refusals.add(sender, refused.reason, refused.detail)

    transport = connect(max(PAYLOAD_OFFSET + work.max_message_bytes, max_status_bytes(config)), refusals.add)
    try:
        member = Member(
            config,
            work.store,
            begin,
            work.expectations,
            transport.send,
            time.monotonic(),
            refuse,
        )
        sources = transport, log, refusals
        write_report = partial(_report, sources=sources, options=options, folder=folder, first=work.first)
        _drive(member, transport, refusals, options, work.first, write_report)
        options.on_finished(folder)
        if options.serve:
            _, host = TrainedAgent(folder.parent).make_host()
            _logger.info("agent %d: all agents have finished; serving", agent)
            server = Server(folder, host, config, transport, refuse)
            server.run(member, lambda serving: write_report(member, time.monotonic(), serving=serving))
    finally:
        transport.close()


def read_secret(folder: Path, membership: Membership) -> str:
    """The agent's secret key, which must belong to the public key that its neighbours know."""
    path = folder / "key.secret"
    secret = read_key(path, "put the one that gossamer keys made there, or use --insecure on a network that you trust")
    known = membership.contact.key  # None if the site was cut before its key was there
    if known not in (None, derive_public_key(secret)):
        raise GossamerError(
            f"{path} is not the key that agent {membership.agent}'s neighbours know; cut the shards again"
        )
    return secret


def _report(
    member: Member,
    now: float,
    sources: "tuple[Transport, EvaluationLog, RefusalLog]",
    options: PeerOptions,
    folder: Path,
    first: int,
    serving: Member | None = None,
) -> PeerReport:
    """Pass on and store the agent's progress."""
    report = make_report(member, *sources, now, first, serving)
    write_status(folder, report)
    options.on_report(report)
    return report


def _drive(
    member: Member,
    transport: Transport,
    refusals: RefusalLog,
    options: PeerOptions,
    first: int,
    write_report: Callable[[Member, float], PeerReport],
) -> None:
    """Pass messages in both directions, until all agents are done and the neighbours had time to learn of it; who
    serves can tell them later."""
    gc.freeze()  # objects made so far stay: scanning them again and again would cost more than the protocol
    agent, reported, progress = member.membership.agent, 0.0, ProgressLog()
    serving = name_serving(member.membership.run)
    while True:
        began = time.monotonic()
        for sender, message in transport.receive(min(member.wake_at - began, options.report_every)):
            if not is_of_run(message, serving):  # of a neighbour that serves already
                member.receive(sender, message, time.monotonic())
        now = time.monotonic()
        member.tick(now)
        if now > began + options.report_every + BUSY_SECONDS:
            continue  # messages may have come during this agent's own arithmetic: read them before anyone is given up
        leaving = member.may_leave(now) or (options.serve and member.all_done)
        if now >= reported + options.report_every or leaving:
            progress.add(write_report(member, now), now)
            reported = now
        if leaving and member.all_done:
            return
        if leaving:
            raise LeftEarlyError(
                f"agent {agent} has finished and leaves, but has heard of nobody for {ISOLATION_TIMEOUT:.0f} s and "
                f"not that agent {join_numbers(member.waiting_for)} has finished; if it has not, start both again"
            )
        waited = now - member.waiting_since
        if options.give_up is not None and member.waiting_for and waited > options.give_up:
            raise MissingNeighbourError(
                f"agent {agent} has waited {waited:.0f} s for agent {join_numbers(member.waiting_for)} at "
                f"step {training_step_of(member, first)}; see whether they run"
                f"{_describe_refusals(refusals, member.waiting_for)}"
            )


def _describe_refusals(refusals: RefusalLog, agents: Sequence[int]) -> str:
    """The refusals of these agents' messages, without those that belong to every recovery."""
    by_sender = refusals.by_sender()
    found = [
        f"{count} of agent {agent} as {reason}"
        for agent in agents
        for reason, count in by_sender.get(str(agent), {}).items()
        if reason not in RECOVERY_REASONS
    ]
    return f"; refused {', '.join(found)}" if found else ""
