"""`gossamer audit`: what an agent, or a coalition, learns about the others' vertices."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gossamer.commands import logs
from gossamer.commands.common import combine_settings, load_data, print_json, print_line, report_errors
from gossamer.commands.options import AsJson, LogLevel, with_settings
from gossamer.errors import GossamerError
from gossamer.runs.options import Options

EXAMPLES = """[bold]Examples[/]

gossamer audit digits --agents 4

gossamer audit runs/digits-1 --observer 2 --json

gossamer audit shards/agent-3

gossamer audit cora --agents 6 --coalition 1,4 --sample 10

gossamer audit digits --agents 4 --hidden 8 --steps 40 --membership 8 --no-attack
"""


@report_errors
@with_settings()
def audit(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|AGENT|SETTINGS",
            show_default=False,
            help="A run directory, the folder of an agent that has trained as a peer, a settings file (.toml), or a "
            "data set with options as for gossamer train. [dim]\\[default: digits][/]",
        ),
    ] = None,
    observer: Annotated[
        int | None,
        typer.Option(metavar="K", help="The curious agent. [dim]\\[default: the one that sees most][/]"),
    ] = None,
    coalition: Annotated[
        str | None, typer.Option(metavar="K,K", help="Several curious agents that share what they receive.")
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Vertices to reconstruct. [dim]\\[default: 500, or 60 of more than 300 features, which take longer "
            "each][/]",
        ),
    ] = None,
    attack_steps: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Steps of the run that are trained again and attacked. [dim]\\[default: 60][/]"
        ),
    ] = None,
    attack: Annotated[
        bool, typer.Option("--attack/--no-attack", help="Run the attacks; without, algebra only.")
    ] = True,
    membership: Annotated[
        int, typer.Option(metavar="N", min=0, help="Infer membership with so many shadow runs, each a whole training.")
    ] = 0,
    canaries: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Bound the epsilon of a run with --privacy from below, with so many canaries."
        ),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Picture of originals beside reconstructions (.png). [dim]\\[default: reconstructions.png in a run "
            "directory][/]",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    log_level: LogLevel = "warning",
    *,
    options: Options,
) -> None:
    """Measure what an agent, or a coalition, learns about other agents' vertices from the messages of a run.

    From algebra: which features follow from the rows that it receives. From attacks: features and labels are
    reconstructed from what the agent received, as it was recorded (gossamer launch --record, gossamer peer --record),
    or else as the run sends it when it is trained again on this machine. Takes about a minute; more steps, a larger
    sample and shadow runs take longer. An agent's own folder has no truth about others: what is reconstructed has no
    rate of success there.
    """
    logs.configure(log_level)
    curious = _parse_curious(observer, coalition)
    from gossamer import auditing
    from gossamer.report.audit_tables import show_audit

    folder = None if target is None else Path(target)
    is_run = folder is not None and folder.is_dir() and (folder / "run.json").is_file()
    is_agent = folder is not None and folder.is_dir() and not is_run and (folder / "shard.json").is_file()
    if folder is not None and folder.is_dir() and not (is_run or is_agent or (folder / "features.csv").is_file()):
        raise GossamerError(
            f"{folder} is neither a run directory (it has no run.json), nor an agent's folder (shard.json), nor a "
            "folder of CSV tables"
        )
    picture = (out or (folder / auditing.PICTURE if is_run and folder else None)) if attack else None
    asked = auditing.AuditOptions(curious, attack, attack_steps, sample, membership, picture, canaries)
    if membership:
        print_line(f"training {membership} shadow runs; --membership with fewer is faster and less exact")
    if folder is not None and (is_run or is_agent):
        if options:
            raise GossamerError(
                f"a run directory is audited with its own settings; leave --{next(iter(options)).replace('_', '-')} "
                "away, or give a data set"
            )
        found = auditing.audit_run(folder, asked) if is_run else auditing.audit_agent(folder, asked)
        name = str(folder)
    else:
        settings = combine_settings(target, options)
        graph = load_data(settings)
        found, name = auditing.audit_settings(graph, settings, asked), graph.name
    if as_json:
        print_json(found.to_dict())
        return
    console = Console()
    show_audit(console, found, escape(name))
    if picture is not None:
        console.print(f"Picture: [bold]{escape(str(picture))}[/]", highlight=False, soft_wrap=True)


def _parse_curious(observer: int | None, coalition: str | None) -> list[int] | None:
    if observer is not None and coalition is not None:
        raise GossamerError("give --observer for one agent or --coalition for several, not both")
    if coalition is None:
        return None if observer is None else [observer]
    try:
        return [int(part) for part in coalition.split(",")]
    except ValueError:
        raise GossamerError(
            f"expected agents with commas between them, as in --coalition 1,4; got {coalition!r}"
        ) from None
