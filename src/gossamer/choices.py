"""Names that settings take, with remarks for --help, apart from the tables of their values, which import PyTorch.

Whoever adds to a table from outside the package (docs/extending.md) adds to its names. tests/test_choices.py compares
the names here with the tables.
"""

import difflib
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=str | int)
NEAR, MOST_LETTERS = 0.6, 80  # similarity from which on a name is taken for another's, and letters that are compared


def suggest(word: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known one that was meant, or nothing."""
    close = difflib.get_close_matches(word[:MOST_LETTERS].lower(), list(names), n=1, cutoff=NEAR)
    return f"; did you mean {close[0]!r}?" if close else ""


@dataclass(frozen=True, eq=False)
class Choices(Generic[Name]):
    """Names that a setting takes, each with a remark for --help, which may be empty."""

    remarks: Mapping[Name, str]
    module: str = ""  # that holds the table of what the names stand for
    table: str = ""

    @property
    def names(self) -> tuple[Name, ...]:
        """The names here, and those that somebody has added to the table, whose module is then imported already."""
        added: Collection[Name] = getattr(sys.modules.get(self.module), self.table, ())
        return (*self.remarks, *(name for name in added if name not in self.remarks))

    def check(self, value: Name) -> Name:
        """Return a known name."""
        if value not in self.names:
            raise ValueError(f"input should be {self.list_names()}{suggest(str(value), map(str, self.names))}")
        return value

    def describe(self) -> list[str]:
        """The names here with their remarks."""
        return [f"{name} ({remark})" if remark else f"{name}" for name, remark in self.remarks.items()]

    def list_names(self) -> str:
        """The names alone, as a list."""
        return _enumerate([repr(name) for name in self.names])

    def __str__(self) -> str:
        return _enumerate(self.describe())


def _enumerate(parts: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _plain(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "")


DATASET_NAMES = Choices(
    _plain("digits", "cora", "citeseer", "pubmed", "coauthor-physics", "minesweeper", "pems-orange", "pemsd4", "pemsd8")
    | {"blocks": "generated, as in blocks:vertices=1000000,edges=10000000: gossamer docs data"},
    "gossamer.data",
    "DATASETS",
)
TASK_NAMES = Choices(
    {
        "auto": "by the targets",
        "multiclass": "one class a vertex",
        "multilabel": "any number of labels a vertex",
        "regression": "real values",
    }
)
ASSIGNMENT_NAMES = Choices(
    _plain("bfs", "balanced", "uniform", "streaming", "metis", "nearest"), "gossamer.assignment", "ASSIGNMENTS"
)
TOPOLOGY_NAMES = Choices(
    {
        "admm": "designed: where they share data edges, and as little more as the gap needs",
        "needed": "where they share data edges",
    }
    | _plain("complete", "ring", "line", "star", "grid", "torus", "exponential", "random"),
    "gossamer.topology",
    "TOPOLOGIES",
)
SEQUENCE_FORMS = Choices(
    {
        "one-peer": "a partner a step, over a hypercube or an exponential graph",
        "matchings": "random pairs",
        "failing:P[,TOPOLOGY]": "links of a topology, by default admm, each down with probability P in a step",
        "switching:FILE": "links by step: CSV step,agent,neighbour or .npy, steps x m x m",
    }
)
MISSING_NAMES = Choices(
    {
        "relay": "over other links of the step, else as drop",
        "last": "the last row that came stands in, as a constant",
        "drop": "left out, and the receiver scales the others up",
    }
)
LOST_EDGES_NAMES = Choices(
    {
        "relay": "their rows go over the agents between them, and gradients stay exact",
        "drop": "left out, as in Sec. V-C of the paper",
    }
)
MIXING_NAMES = Choices(_plain("metropolis", "uniform", "fastest"), "gossamer.topology", "MIXING_WEIGHTS")
LAYER_NAMES = Choices(
    {
        "gcn": "D X W; of order 2 and more as polynomial",
        "polynomial": "the sum of D^p X W_p for p = 0 to P",
        "chebyshev": "the same in Chebyshev polynomials",
        "linear": "no hidden layer",
        "mlp": "no graph",
        "gat": "attention",
        "gatv2": "dynamic attention",
        "sage": "mean, sum or max of neighbours beside the vertex itself",
        "gin": "sum of neighbours through an inner network",
        "gated": "gated sum of neighbours",
        "sgc": "D^P X W without hidden layers",
        "appnp": "personalised PageRank of a network without the graph",
    },
    "gossamer.model.layers",
    "LAYERS",
)
ACTIVATION_NAMES = Choices(_plain("relu", "tanh", "elu", "identity"), "gossamer.model.layers", "ACTIVATIONS")
AGGREGATE_NAMES = Choices(_plain("mean", "sum", "max"))
NORM_NAMES = Choices({"none": "", "layer": "LayerNorm, of each vertex by itself"})
JUMP_NAMES = Choices({"none": "", "cat": "all layers' outputs side by side", "max": "their largest"})
SHIFT_NAMES = Choices(
    {"auto": "the usual one of the layers: gossamer docs layers"}
    | _plain("normalized", "random-walk", "laplacian", "scaled-laplacian", "identity")
    | {"mean": "of neighbours alone, without edge weights", "sum": "the same as a sum"},
    "gossamer.model.shift",
    "SHIFTS",
)
UPDATE_NAMES = Choices(_plain("gd", "momentum", "adam"), "gossamer.agents.rules", "UPDATE_RULES")
CONSENSUS_NAMES = Choices(
    {
        "plain": "neighbours see each other's weights",
        "masked": "an agent learns its mixture, no single neighbour's weights",
    }
)
COMPRESSION_FORMS = Choices(
    {
        "none": "",
        "power:RANK": "low-rank differences",
        "power:RANK,bits=8": "",
        "choco:bits=8": "",
        "choco:topk=SHARE": "",
        "choco:randk=SHARE": "public copies",
    }
)
PRIVACY_FORMS = Choices(
    {
        "none": "",
        "node:epsilon=8,delta=1e-5": "a vertex's features, label and out-edges",
        "edge:epsilon=4,delta=1e-5": "an edge inside an agent: gossamer docs privacy",
    }
)
ROW_CODEC_NAMES = Choices(
    {"none": "as they are", "quantised-16": "", "quantised-8": "16 or 8 bits by stochastic rounding, keeping the mean"},
    "gossamer.agents.row_codecs",
    "ROW_CODECS",
)
BOUNDARY_BITS = Choices({0: "as they are", 16: "", 8: "stochastic rounding, which keeps the mean"})
PRESET_NAMES = Choices({"default": "works without tuning", "paper": "Sec. V-A"}, "gossamer.runs.presets", "PRESETS")
KEEP_NAMES = Choices({"best": "those of the best validation score", "last": "those of the last step"})
MEASURE_NAMES = Choices(
    {
        "auto": "at every evaluation; at the end if consensus is compressed, never if it is masked",
        "all": "at every evaluation",
        "end": "",
        "none": "nor the mean of all weights",
    }
)
SCORE_NAMES = Choices(
    {
        "auto": "accuracy of classes, the loss of labels, mse of real values",
        "accuracy": "share of right decisions",
        "macro_f1": "mean over classes",
        "micro_f1": "over all decisions",
        "roc_auc": "",
        "average_precision": "",
        "loss": "what is trained on",
    }
    | _plain("mse", "mae", "rmse", "r2"),
    "gossamer.agents.scores",
    "SCORES",
)
DECAY_NAMES = Choices({"first": "the first layer's", "all": "all layers'"})
CLASS_WEIGHT_NAMES = Choices(
    {"none": "all alike", "balanced": "rare classes more, by the inverse of their frequency; of labels the rare side"}
)
DTYPE_NAMES = Choices(_plain("float32", "float64"))
