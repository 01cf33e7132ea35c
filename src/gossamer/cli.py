"""The command `gossamer`: its sub-commands, each imported when it is chosen, and the options and warnings of all."""

import inspect
import warnings
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gossamer.commands.common import print_warning
from gossamer.errors import GossamerWarning
from gossamer.runs.hints import make_hint

UsageError: Any = typer.BadParameter.__base__  # of click, or of the copy of it that newer versions of typer have
COMMANDS = {  # as the docstrings of the modules in gossamer.commands begin: --help imports none of them
    "new": "Write a small project to start from: settings, a script that prepares your data, and what to run.",
    "train": "Train a graph neural network across agents, simulated on this machine.",
    "predict": "Run distributed inference with a trained run's weights and write every vertex's class or value as CSV.",
    "export": "Write a trained run's network as a PyTorch model file in PyTorch Geometric's names, with a model card "
    "beside it.",
    "topology": "Design who talks to whom: the links that the data graph needs, and as little more as a spectral gap "
    "takes.",
    "audit": "Measure what an agent, or a coalition, learns about other agents' vertices from the messages of a run.",
    "launch": "Train with one process an agent on this machine, over encrypted loopback connections.",
    "cluster": "Train as one rank of a PyTorch job, started by torchrun; each rank carries a share of the agents.",
    "shard": "Cut a data set into shards, one for each agent: its vertices, its rows of D and C, its neighbours.",
    "keys": "Make a key pair: the public key goes to whoever cuts the shards, the secret one stays on this machine.",
    "peer": "Train one agent with its neighbours, which run elsewhere.",
    "status": "Show where agents stand: step, loss, whom they wait for, epoch, refused messages, age of the last "
    "checkpoint.",
    "watch": "Show a run on a page in the browser, while it goes on or when it has ended, until Ctrl-C.",
    "leave": "Let an agent leave its run: the others decide to go on without it, and its process ends.",
    "admit": "Admit a public key: whoever has its secret one may ask to join a run over a link to this agent.",
    "gather": "Join the folders of agents that have finished into one run directory, where they are all at hand.",
    "replay": "Simulate a run whose agents left and joined in this process, and compare its end with the agents' "
    "weights.",
    "report": "Write what a run did as one HTML file that loads nothing from elsewhere.",
    "reproduce": "Reproduce the paper's figures and tables, and check its claims one by one.",
    "docs": "List the pages of the documentation, or print one.",
}


class LazyGroup(TyperGroup):
    """A group whose commands are placeholders until one is chosen."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder and load_command(str(name)), rest  # None where a shell completes a mistyped one


class HintingCommand(TyperCommand):
    """A command that knows what users call its options elsewhere."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            unknown = getattr(error, "option_name", None)
            if hasattr(error, "possibilities") and unknown is not None:
                spellings = [option for param in self.params for option in (*param.opts, *param.secondary_opts)]
                options = [option for option in spellings if option.startswith("--")]
                known = {option[2:].replace("-", "_"): option for option in options}
                error.possibilities = None
                hint = make_hint(unknown, known, known.__getitem__)
                error.message += hint and f"; {hint}"
            raise


def _typer(add_completion: bool = False, **options: Any) -> typer.Typer:
    return typer.Typer(
        add_completion=add_completion, rich_markup_mode="rich", pretty_exceptions_enable=False, **options
    )


def load_command(name: str) -> Any:
    """Import a sub-command."""
    module = import_module(f"gossamer.commands.{name}")
    single = _typer()
    function = getattr(module, name)
    single.command(name, cls=HintingCommand, epilog=module.EXAMPLES, help=_flow(inspect.getdoc(function) or ""))(
        function
    )
    return typer.main.get_command(single)


def _flow(text: str) -> str:
    """Paragraphs without the line breaks of the source, which typer would keep in a terminal of any width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


app = _typer(
    add_completion=True,
    cls=LazyGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train graph neural networks across agents that talk only to their neighbours.",
)
for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


def main() -> None:
    """Entry point of the console script."""
    warnings.simplefilter("always", GossamerWarning)
    warnings.showwarning = _show_warning
    app(prog_name="gossamer")  # for python -m gossamer as well: shells complete by this name


def _show_warning(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
    print_warning(str(message))


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("gossamer"))
        raise typer.Exit


@app.callback()
def callback(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
