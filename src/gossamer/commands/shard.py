"""`gossamer shard`: everything each agent needs, and nothing else, in a folder of its own."""

import secrets
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gossamer.choices import DATASET_NAMES
from gossamer.commands import logs
from gossamer.commands.common import combine_settings, load_data, print_warning, report_errors, show_progress
from gossamer.commands.options import LogLevel, with_settings
from gossamer.errors import FileError, GossamerError, shown
from gossamer.files import MAX_SECRET, make_private, read_bytes, read_text
from gossamer.peers.network.addresses import Contact, check_address
from gossamer.runs.options import Options
from gossamer.runs.settings import Settings

EXAMPLES = """[bold]Examples[/]

gossamer shard cora --agents 6 --topology admm --gap 0.5 --hosts hosts.txt --out shards

gossamer shard --site site.toml --out shards

gossamer shard cora --agents 10 --ranks 2 --out runs/cut
"""
MAX_LINE, MAX_COMMENTS = 512, 1 << 20  # bytes of a hosts file for each agent, and for comments


@report_errors
@with_settings()
def shard(
    dataset: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATASET]",
            show_default=False,
            help=f"{', '.join(DATASET_NAMES.names)}, an .npz file, a folder of CSV tables, or a settings file (.toml).",
        ),
    ] = None,
    hosts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="A line for each agent: host:port and, after a blank, its public key (gossamer keys).",
        ),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Instead of a data set: the TOML file of one site, which pools its data with nobody.",
        ),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            show_default=False,
            help="Instead of hosts: cut for N ranks of gossamer cluster, each with a share of the agents.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the shards, agent-0, agent-1, ...")] = Path("shards"),
    log_level: LogLevel = "warning",
    *,
    options: Options,
) -> None:
    """Cut a data set into shards, one for each agent: its vertices, its rows of D and C, its neighbours.

    An agent without a public key in the hosts file gets a key pair here; whoever cuts has then seen its secret.
    With --site, make the shard of one site from its own data alone; it plans the rest with its neighbours.
    """
    logs.configure(log_level)
    if site is not None:
        if dataset is not None or hosts is not None or ranks is not None or options:
            raise GossamerError(
                "--site takes everything from the site file: give no data set, hosts, ranks or settings"
            )
        _make_site_shard(site, out)
    elif dataset is None or (hosts is None) == (ranks is None):
        raise GossamerError("expected a data set and either --hosts FILE or --ranks N, or --site FILE")
    elif ranks is not None:
        _cut_for_ranks(combine_settings(dataset, options), ranks, out)
    elif hosts is not None:
        _cut(combine_settings(dataset, options), hosts, out)


def _cut_for_ranks(settings: Settings, ranks: int, out: Path) -> None:
    from gossamer.engines.cluster.rank_shards import cut_for_ranks

    graph = load_data(settings)
    with show_progress() as (_, _, progress):
        held = cut_for_ranks(out, graph, settings, ranks, progress)
    Console().print(
        f"{escape(str(out))}: {ranks} ranks with {', '.join(map(str, held))} vertices; train with "
        f"[bold]torchrun --nproc-per-node {ranks} -m gossamer cluster {escape(str(out))}[/]",
        highlight=False,
        soft_wrap=True,
    )


def _cut(settings: Settings, hosts: Path, out: Path) -> None:
    from gossamer.peers.network.keys import write_secret
    from gossamer.peers.shards.cut_sites import cut_deployment, write_agent
    from gossamer.report import agent_tables
    from gossamer.runs import new_folders
    from gossamer.runs.deployment import make_deployment
    from gossamer.runs.run import fingerprint_data
    from gossamer.runs.stages import fit_settings

    contacts, members, made = read_hosts(hosts, settings.agents)
    graph = load_data(settings)
    settings = fit_settings(settings, graph)
    new_folders.create(out)
    with show_progress() as (_, _, progress):
        deployment = make_deployment(graph, settings, progress=progress)
    run = secrets.token_hex(8)
    shards = cut_deployment(graph, deployment, settings, run, contacts, members, fingerprint_data(graph))
    for one in shards:
        folder = out / f"agent-{one.membership.agent}"
        write_agent(folder, one)
        if one.membership.agent in made:
            write_secret(folder / "key.secret", made[one.membership.agent])
    if made:
        print_warning(
            f"{len(made)} of {len(shards)} agents had no public key in {hosts}; their secret keys were made here and "
            "lie in their shards"
        )
    agent_tables.show_shards(Console(), shards, out)


def _make_site_shard(site: Path, out: Path) -> None:
    from gossamer.peers.shards.sites import make_site_shard, write_site_shard
    from gossamer.report import agent_tables
    from gossamer.runs.shares import MANIFEST

    made, secret = make_site_shard(site)
    folder = out / f"agent-{made.membership.agent}"
    if (folder / MANIFEST).exists():
        raise GossamerError(f"{folder} holds a shard already; move it away, or give another --out")
    if secret is not None:
        _put_secret(folder / "key.secret", secret)
    write_site_shard(folder, made)
    if secret is None:
        print_warning(
            f"{site} has no secret key; put key.secret into {folder}, or run the peer with --insecure on a network "
            "that you trust"
        )
    agent_tables.show_shards(Console(), [made], out)


def _put_secret(path: Path, secret: str) -> None:
    """Put the site's secret key into its shard, where it may lie already."""
    from gossamer.peers.network.keys import write_secret

    make_private(path.parent)
    if not path.is_file() or read_bytes(path, MAX_SECRET) != f"{secret}\n".encode():
        write_secret(path, secret)


def read_hosts(path: Path, num_agents: int) -> tuple[list[Contact], list[str], dict[int, str]]:
    """The agents' addresses and CURVE keys, their verify keys, and the secret keys of those that had no key."""
    from gossamer.peers.network.keys import make_agent_keys, split_key

    try:
        text = read_text(path, MAX_COMMENTS + MAX_LINE * num_agents)
    except FileError as error:
        raise GossamerError(f"cannot read the hosts file {path}: {error.reason}") from None
    lines = [line.split() for line in text.splitlines() if not line.lstrip().startswith("#")]
    entries = [line for line in lines if line]
    if len(entries) != num_agents:
        raise GossamerError(f"{path} should have a line for each of {num_agents} agents, it has {len(entries)}")
    contacts, members, made = list[Contact](), list[str](), dict[int, str]()
    for agent, entry in enumerate(entries):
        if len(entry) > 2 or max(map(len, entry)) > MAX_LINE:
            raise GossamerError(
                f"{path}, agent {agent}: expected host:port and a public key, got {shown(' '.join(entry))}"
            )
        check_address(entry[0], f"{path}, agent {agent}")
        if len(entry) == 2:
            public = entry[1]
        else:
            public, made[agent] = make_agent_keys()
        key, member = split_key(public, f"{path}, agent {agent}")
        contacts.append(Contact(entry[0], key))
        members.append(member)
    if min(len({contact.key for contact in contacts}), len(set(members))) < num_agents:
        raise GossamerError(f"{path}: two agents have the same public key; make one pair for each with gossamer keys")
    repeated = sorted(address for address, count in Counter(c.address for c in contacts).items() if count > 1)
    if repeated:
        raise GossamerError(f"{path}: two agents listen on {shown(repeated[0])}; give each a port of its own")
    return contacts, members, made
