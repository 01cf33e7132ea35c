"""A peer: one agent in a process of its own, trained with its neighbours over the network (Algorithm 1).

Leaves in its shard a folder for the run: `epoch` and checkpoints to recover from, `secrets.json` (its secret, which
decides dropout masks and quantisation noise), `evaluations.jsonl` (its sums for each evaluation, and what it knows of
all agents'), `refused.jsonl` (the refusal log), `recorded` (received messages, if it records), `done` once it has
finished and `all-done` once it knows that all have; a site's also `planned`, the shard that was planned. When it has
finished, the folder is a run directory (results.py).
"""

import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from gossamer.errors import GossamerError
from gossamer.files import lock_folder, make_private, remove_unfinished
from gossamer.machine import raise_descriptor_limit
from gossamer.peers.agent_folders import EVALUATIONS_FILE, note_first_start, run_folder
from gossamer.peers.changing import SPARE_AGENTS, ChangingAgent, max_changing_bytes
from gossamer.peers.detouring import DetouringTransport
from gossamer.peers.driving import RunWithoutAgentError, drive_peer
from gossamer.peers.evaluation_log import EvaluationLog
from gossamer.peers.identity import Identity
from gossamer.peers.network.curve import derive_public_key
from gossamer.peers.network.keys import read_key
from gossamer.peers.network.sockets import OnRefused, Sockets
from gossamer.peers.network.transport import OpenTransport, Transport
from gossamer.peers.prediction import TrainedAgent
from gossamer.peers.progress import (
    PeerReport,
    make_report,
    write_status,
)
from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.detours import max_detour_bytes
from gossamer.peers.protocol.exchanges import Program
from gossamer.peers.protocol.member import Member
from gossamer.peers.protocol.signatures import UNSIGNED, Signatures, make_keyring
from gossamer.peers.protocol.statements import max_status_bytes
from gossamer.peers.protocol.wire import PAYLOAD_OFFSET, RefusedError, is_of_run
from gossamer.peers.refusals import RefusalLog
from gossamer.peers.scheduling import batch_scheduling
from gossamer.peers.serving import Server, name_serving
from gossamer.peers.shard_work import Work
from gossamer.peers.shards.membership import Membership
from gossamer.peers.shards.shard import Shard, max_step_gap, read_shard
from gossamer.peers.shards.sites import SiteShard, is_site, read_site_shard
from gossamer.peers.site_work import SiteWork
from gossamer.peers.staged_work import make_work

DESCRIPTOR_LIMIT = 1 << 14  # ZeroMQ accepts about a thousand connections before the monitor has handled them
Connect = Callable[[int, OnRefused], Transport]  # makes a transport for messages of at most so many bytes
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PeerOptions:
    """Reports that the operator wants, the time after which a missing neighbour ends the process, and recording."""

    on_report: Callable[[PeerReport], None] = lambda report: None
    report_every: float = 0.5  # seconds
    give_up: float | None = None  # seconds; None: never
    record: bool = False  # messages, for an audit
    serve: bool = False  # stay for inference when all agents have finished
    on_finished: Callable[[Path], None] = lambda folder: None  # takes the run directory, before the agent serves
    address: str | None = None  # where neighbours reach the agent from now on; None: as its shard says


def run_peer(folder: Path, options: PeerOptions, insecure: bool = False, listen: str | None = None) -> Path:
    """Train the agent of a shard until all agents have finished, and return the folder of its result.

    `listen` is an address to listen on, if it is another than the one that the neighbours connect to.
    """
    shard = read_site_shard(folder) if is_site(folder) else read_shard(folder)
    membership, changes = shard.membership, shard.settings.evict_after is not None
    if options.address is not None and not changes:
        raise GossamerError(
            "--address is for runs whose agents may leave and join (--evict-after); for others make the shards again"
        )
    secret = None if insecure else read_secret(folder, membership, changes)
    signatures: Signatures = UNSIGNED
    if secret is not None and not changes:
        signatures = make_keyring(secret, membership.verify_keys, membership.agent)
    address = listen or options.address or membership.contact.address
    raise_descriptor_limit(DESCRIPTOR_LIMIT)

    def connect(max_bytes: int, on_refused: OnRefused) -> Transport:
        spare = SPARE_AGENTS if changes else 0
        sockets = Sockets(membership.agent, address, membership.neighbours, secret, max_bytes, on_refused, spare)
        _logger.info("agent %d listens on %s%s", membership.agent, address, " without encryption" * (secret is None))
        return sockets

    train_agent(connect, folder, shard, options, signatures, secret)
    return run_folder(folder, membership)


def train_agent(
    connect: Connect,
    folder: Path,
    shard: Shard | SiteShard,
    options: PeerOptions,
    signatures: Signatures = UNSIGNED,
    secret: str | None = None,
) -> None:
    """Train the agent of a shard over the transport that `connect` makes; agents that sign have encrypted links. Where
    agents may leave and join, signatures are made of the `secret` key."""
    state_folder = run_folder(folder, shard.membership)
    make_private(state_folder)
    torch.set_num_threads(shard.settings.threads or 1)
    with lock_folder(state_folder, f"trains the agent of {state_folder.parent}"), batch_scheduling():
        remove_unfinished(state_folder)
        note_first_start(state_folder)
        if shard.settings.evict_after is None:
            _train(connect, state_folder, shard, options, signatures)
        elif isinstance(shard, SiteShard) and not options.record:
            _train_changing(connect, folder, shard, options, secret)
        elif options.record:
            raise GossamerError("--record is for agents that stay the same; leave it, or --evict-after, away")
        else:
            raise GossamerError(
                f"{folder}: this shard cannot be planned anew without some agents; cut the shards again"
            )


def _train(
    connect: Connect, folder: Path, shard: Shard | SiteShard, options: PeerOptions, signatures: Signatures
) -> None:
    agent = shard.membership.agent
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

    def begin(step: int, session: bytes, unable: tuple[int, ...]) -> Program:
        epoch = work.store.epoch()
        if step < work.first:
            _logger.info("agent %d: epoch %d, planning with the other sites", agent, epoch)
        else:
            _logger.info("agent %d: epoch %d, training from step %d", agent, epoch, step - work.first)
        return work.program(step, session)

    def refuse(sender: int, refused: RefusedError) -> None:
        refusals.add(sender, refused.reason, refused.detail)

    largest = max(PAYLOAD_OFFSET + work.max_message_bytes, max_status_bytes(config))
    own = shard.membership
    links = connect(max(largest, max_detour_bytes(own.num_agents)), refusals.add)
    transport = DetouringTransport(links, own, signatures, largest, refuse)
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
        waits = defaultdict[int, float](float)
        sources = transport, log, refusals, waits
        write_report = partial(_report, sources=sources, options=options, folder=folder, first=work.first)
        serving_name = name_serving(member.membership.run)
        drive_peer(
            member,
            transport,
            refusals,
            lambda now: write_report(member, now),
            options.report_every,
            options.give_up,
            options.serve,
            lambda message: is_of_run(message, serving_name),
            waits,
            lambda: member.exchanges.missing_routes,
        )
        options.on_finished(folder)
        if options.serve:
            share, host = TrainedAgent(folder.parent).make_host()
            _logger.info("agent %d: all agents have finished; serving", agent)
            server = Server(folder, host, share.routes, config, transport, refuse)
            server.run(member, lambda serving: write_report(member, time.monotonic(), serving=serving))
    finally:
        transport.close()


def _train_changing(connect: Connect, folder: Path, shard: SiteShard, options: PeerOptions, secret: str | None) -> None:
    """Train an agent through the memberships of its run."""
    agent, state = shard.membership.agent, run_folder(folder, shard.membership)
    refusals = RefusalLog(state / "refused.jsonl", agent)
    identity = Identity(folder, state, shard, secret, options.address or shard.membership.contact.address)
    transport = connect(PAYLOAD_OFFSET + max_changing_bytes(shard), refusals.add)
    try:
        if not isinstance(transport, OpenTransport):
            raise AssertionError("agents that may leave and join need a transport whose neighbours may change")
        changing = ChangingAgent(folder, shard, identity, transport, refusals, time.monotonic())
        group = changing.group

        def write_report(now: float, serving: Member | None = None) -> PeerReport:
            changing.look_around(now)
            report = changing.make_report(now, serving)
            write_status(state, report)
            options.on_report(report)
            return report

        drive_peer(
            group,
            transport,
            refusals,
            write_report,
            options.report_every,
            options.give_up,
            options.serve,
            lambda message: is_of_run(message, name_serving(group.term.name)),
            changing.waits,
        )
        if group.left:
            return _logger.info("agent %d has left the run; the others go on without it", agent)
        if group.member is None:
            raise RunWithoutAgentError(f"the run has finished without agent {agent}, which was no member at its end")
        changing.publish_result()
        options.on_finished(state)
        if options.serve:
            share, host = TrainedAgent(folder).make_host()
            _logger.info("agent %d: all agents have finished; serving", agent)
            by_number, config = changing.term_transport, changing.protocol_config
            server = Server(changing.state_folder, host, share.routes, config, by_number, group.member.on_refused)
            server.run(changing.late_agents, lambda serving: write_report(time.monotonic(), serving))
    finally:
        transport.close()


def read_secret(folder: Path, membership: Membership, may_change: bool = False) -> str:
    """The agent's secret key, which must belong to the public key that its neighbours know, unless it `may_change`."""
    path = folder / "key.secret"
    secret = read_key(path, "put the one that gossamer keys made there, or use --insecure on a network that you trust")
    known = membership.contact.key  # None if the site was cut before its key was there
    if not may_change and known not in (None, derive_public_key(secret)):
        raise GossamerError(
            f"{path} is not the key that agent {membership.agent}'s neighbours know; cut the shards again"
        )
    return secret


def _report(
    member: Member,
    now: float,
    sources: tuple[DetouringTransport, EvaluationLog, RefusalLog, Mapping[int, float]],
    options: PeerOptions,
    folder: Path,
    first: int,
    serving: Member | None = None,
) -> PeerReport:
    """Pass on and store the agent's progress."""
    report = make_report(member, *sources, now, first, serving)
    report["detours"] = sources[0].detours
    write_status(folder, report)
    options.on_report(report)
    return report
