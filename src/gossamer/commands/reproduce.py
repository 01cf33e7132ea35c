"""`gossamer reproduce`: the paper's figures, tables and theorem, measured again and put beside its claims."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from gossamer.commands import logs
from gossamer.commands.common import err, print_json, report_errors
from gossamer.commands.options import AsJson, LogLevel
from gossamer.errors import GossamerError

if TYPE_CHECKING:
    from gossamer.experiments.reproduction import ExperimentProgress, Outcome

EXAMPLES = """[bold]Examples[/]

gossamer reproduce fig2 --quick

gossamer reproduce all --quick --out quick

gossamer reproduce fig4 --seeds 5 --json
"""
Part = Literal["fig2", "fig3", "fig4", "fig5", "fig6", "table2", "theory", "changing", "all"]


@report_errors
def reproduce(
    what: Annotated[
        Part,
        typer.Argument(help="Which part of the paper.", show_default=False),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer steps and points: seconds instead of minutes.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Repetitions, each with its own split, assignment and weights; Fig. 5's long runs take at most 3, "
            "Table II 5 (1 with --quick), changing 5, theory 1 "
            "[dim]\\[default: 10, or 2 with --quick][/]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write; what it holds already is not computed again. "
            "[dim]\\[default: reproduction, or reproduction/quick][/]",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    log_level: LogLevel = "warning",
) -> None:
    """Reproduce the paper's figures and tables, and check its claims one by one.

    fig2: sparsity of C. fig3: loss and accuracy, and Table I. fig4: few links.
    fig5: update rules. fig6: rarer consensus. table2: traffic. theory: Theorem 2.
    changing: links that fail, which the paper leaves open.

    Writes CSV, PNG and PDF, and a verdict for each part (summary.md, claims.json).
    An interrupted reproduction goes on where it stopped.
    `gossamer docs reproduction` holds the outcome.
    """
    logs.configure(log_level)
    from gossamer.experiments import verdicts
    from gossamer.report import bars, terminal

    parent = out or Path("reproduction/quick" if quick else "reproduction")
    repetitions = seeds or verdicts.DEFAULT_SEEDS[quick]
    outcomes, left_out = [], []
    experiments = load_experiments()
    for name in experiments if what == "all" else [what]:
        folder = parent / name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with bars.sweep_bar(err, name) as progress:
                made = experiments[name](folder, quick, repetitions, progress)
                outcomes.append(replace(made, quick=quick, seeds=repetitions))
        except GossamerError as error:  # such as a data set that is not here: the other parts do not need it
            left_out.append(f"{name}: {error}")
            err.print(f"[yellow]left out:[/] {escape(left_out[-1])}", highlight=False, soft_wrap=True)
    if outcomes:
        verdicts.save(parent, outcomes)
    if as_json:
        print_json({outcome.name: verdicts.to_dict(outcome) for outcome in outcomes})
    else:
        for outcome in outcomes:
            terminal.show_claims(Console(), outcome, verdicts.verdict(outcome.claims), parent / outcome.name)
    if left_out:
        raise GossamerError("\n".join(left_out))


def load_experiments() -> "dict[str, Callable[[Path, bool, int, ExperimentProgress], Outcome]]":
    """The parts of the paper by name."""
    from gossamer.experiments import changing, fig2, fig3, fig4, fig5, fig6, table2, theory

    return {
        "fig2": fig2.reproduce,
        "fig3": fig3.reproduce,
        "fig4": fig4.reproduce,
        "fig5": fig5.reproduce,
        "fig6": fig6.reproduce,
        "table2": table2.reproduce,
        "theory": theory.reproduce,
        "changing": changing.reproduce,
    }
