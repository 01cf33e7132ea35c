"""`gossamer predict`: distributed inference with the weights of a run."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gossamer.commands import logs
from gossamer.commands.common import err, print_json, report_errors
from gossamer.commands.options import LogLevel
from gossamer.errors import GossamerError

if TYPE_CHECKING:
    from gossamer.data import DataGraph
    from gossamer.runs.run import StartRun

EXAMPLES = """[bold]Examples[/]

gossamer predict runs/digits-1

gossamer predict runs/digits-1 --data new.npz --out new.csv

gossamer predict runs/digits-1 --data new.npz --agents

gossamer predict agent-0 --data new-patients

torchrun --nproc-per-node 2 -m gossamer predict runs/digits-1
"""


@report_errors
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, or an agent's folder.")],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET",
            help="Another graph with the same features, as gossamer train takes it; labels are not needed. For an "
            "agent: its new vertices, and their edges among each other and to its own.",
            show_default=False,
        ),
    ] = None,
    agents: Annotated[
        bool,
        typer.Option(
            "--agents",
            help="Predict --data over the agents, its vertices assigned by the run's method, instead of centrally with "
            "the mean weights.",
        ),
    ] = False,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            help="For an agent: predict from the rows of its neighbours at the end of the run, even if it serves.",
        ),
    ] = False,
    give_up: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="For an agent that serves: wait so long for its neighbours."),
    ] = 30.0,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write a column for each class, as --data always does.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="CSV file to write. [dim]\\[default: DIR/predictions.csv, with --data DIR/predictions-NAME.csv][/]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    log_level: LogLevel = "warning",
) -> None:
    """Run distributed inference with a trained run's weights and write every vertex's class or value as CSV.

    Each vertex is predicted with its own agent's weights, one exchange of boundary rows for each propagation. Started
    by torchrun, each rank carries a share of the agents, and the first writes the file.

    With --data, predict another graph: centrally with the mean of the agents' weights, or over the agents. Where it has
    labels, as gossamer train takes them, the score on them is printed, too.

    Of an agent's folder, predict that agent's vertices: with its neighbours, by a forward pass of all agents that run
    gossamer peer --serve, or alone, from the rows that they sent at the end of the run.
    """
    logs.configure(log_level)
    if agents and data is None:
        raise GossamerError("--agents goes with --data: the run's own data is always predicted by its agents")
    on_ranks = "RANK" in os.environ and "WORLD_SIZE" in os.environ  # started by torchrun
    if on_ranks and data is not None:
        raise GossamerError("--data is predicted in one process; start it without torchrun")
    from gossamer import api
    from gossamer.engines.simulation import start_run
    from gossamer.report import bars
    from gossamer.runs.shares import is_agent_folder

    if is_agent_folder(folder):
        if agents:
            raise GossamerError("--agents goes with a run directory: an agent predicts its own vertices")
        _predict_agent(folder, data, alone, give_up, out, as_json)
    elif data is not None:
        _predict_data(folder, data, agents, out, as_json)
    elif on_ranks:
        from gossamer.commands.ranks import join_ranks
        from gossamer.engines.cluster.job import share_errors, start_on_ranks

        with join_ranks():
            with share_errors():
                graph = api.load_graph(folder)
            _predict(folder, graph, start_on_ranks, out, as_json, probabilities)
    else:
        with bars.download_bar(err, str(folder)) as progress:
            graph = api.load_graph(folder, progress)
        _predict(folder, graph, start_run, out, as_json, probabilities)


def _predict_agent(
    folder: Path, data: str | None, alone: bool, give_up: float, out: Path | None, as_json: bool
) -> None:
    """Predict the vertices of one agent, with its neighbours or alone."""
    from gossamer.peers.prediction import TrainedAgent, ask_neighbours
    from gossamer.report.predictions import write_agent_predictions
    from gossamer.report.score_text import format_score, label_score

    agent = TrainedAgent(folder)
    answer = None if alone else ask_neighbours(agent.state, give_up)
    found = agent.predict(None if answer is None else answer.rows, None if data is None else Path(data))
    name = "predictions.csv" if data is None else f"predictions-{Path(data).stem}.csv"
    target = out or agent.state / name
    scores = write_agent_predictions(target, found)
    how = "alone, from the rows that its neighbours sent at the end of the run"
    if answer is not None:
        how = f"with its neighbours ({1000 * answer.seconds:.0f} ms)"
    if as_json:
        about = {"predictions": str(target), "vertices": len(found.vertices), "alone": answer is None}
        about |= {mask: {score: value} for mask, (score, value) in scores.items()}
        print_json(about if answer is None else about | {"seconds": answer.seconds})
        return
    console = Console()
    console.print(f"Agent {agent.agent} predicts {how}.", highlight=False)
    for mask, (score, value) in scores.items():
        console.print(f"On its {mask} vertices: {label_score(score)} {format_score(score, value)}", highlight=False)
    _print_target(len(found.vertices), target)


def _predict_data(folder: Path, data: str, over_agents: bool, out: Path | None, as_json: bool) -> None:
    """Predict another graph than the run's own."""
    from gossamer.engines.simulation import start_run
    from gossamer.report.predictions import write_predictions
    from gossamer.report.score_text import format_score, label_score
    from gossamer.runs.inference import predict_unlabelled, score_labelled
    from gossamer.runs.trained import read_trained

    trained = read_trained(folder)
    found = predict_unlabelled(trained, data, start_run, over_agents)
    scores = score_labelled(trained, data, found.outputs) or {}
    target = out or folder / f"predictions-{found.graph.name}.csv"
    write_predictions(target, found.graph, found.assignment, found.outputs, probabilities=True)
    if as_json:
        about = {"predictions": str(target), "vertices": found.graph.num_vertices, "agents": over_agents}
        print_json(about | scores)
    else:
        for name, score in scores.items():
            shown = f"{label_score(name)} {format_score(name, score)}"
            Console().print(f"On the labels of {escape(found.graph.name)}: {shown}", highlight=False)
        _print_target(found.graph.num_vertices, target)


def _predict(
    folder: Path, graph: "DataGraph", start: "StartRun", out: Path | None, as_json: bool, probabilities: bool
) -> None:
    from gossamer.report import terminal
    from gossamer.report.predictions import write_predictions
    from gossamer.runs import directory

    run = directory.read_weights(folder, graph, start)
    outputs, scores = run.predict(), run.scores(ranking=True)  # by all ranks
    if not run.engine.leads:
        return
    target = out or folder / "predictions.csv"
    write_predictions(target, graph, run.deployment.assignment, outputs, probabilities)
    if as_json:
        print_json({"predictions": str(target), **scores})
    else:
        terminal.show_scores(Console(), {"distributed": scores}, run.score.name)
        _print_target(graph.num_vertices, target)


def _print_target(count: int, target: Path) -> None:
    Console().print(f"Predictions of {count} vertices: [bold]{escape(str(target))}[/]", highlight=False, soft_wrap=True)
