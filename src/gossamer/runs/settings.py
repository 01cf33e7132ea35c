"""Settings: the one typed object behind the command line, a settings file and the Python call."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gossamer.agents.consensus import ConsensusMethod, parse_method
from gossamer.agents.row_codecs import ROW_CODECS, RowCodec
from gossamer.assignment import ASSIGNMENTS
from gossamer.data import DATASETS
from gossamer.errors import GossamerError, shown
from gossamer.model.layers import LAYERS
from gossamer.runs.toml_files import read_toml

MOST_COMPLAINTS = 10  # of one file, in a message
MOST_AGENTS = 1 << 16
MOST_WIDTH, MOST_LAYERS = 1 << 20, 64  # of the hidden layers
MOST_STEPS = 10**12
MOST_THREADS = 1024
MOST_FACTOR = 1e30  # of real numbers: their products stay below float32's largest


def _widths(value: Any) -> Any:
    """Accept 64, "64,32" and [64, 32]."""
    if isinstance(value, int):
        return (value,)
    if isinstance(value, str):
        return tuple(part for part in value.replace(" ", "").split(",") if part)
    return value


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("expected text without control characters")
    return value


def _compression(value: str) -> str:
    try:
        parse_method(value)
    except GossamerError as error:
        raise ValueError(str(error)) from None
    return value


Text = Annotated[str, Field(max_length=4000), AfterValidator(_one_line)]  # a name or a path


def _known_layers(value: str) -> str:
    """A name of the table of layers, to which others can be added (model/layers)."""
    if value not in LAYERS:
        raise ValueError(f"expected one of {', '.join(LAYERS)}")
    return value


Width = Annotated[int, Field(ge=1, le=MOST_WIDTH)]


class Settings(BaseModel):
    """What a run does. Every field is an option of `gossamer train` and a key of a settings file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    dataset: Text = "digits"
    """A data set's name, with parameters if it is generated, an .npz file or a folder of CSV tables."""
    agents: int = Field(default=10, ge=1, le=MOST_AGENTS)
    """Number of agents m; 1 is the centralised model."""
    assignment: Text = "bfs"
    """Who holds which vertex: bfs, balanced, uniform, streaming, metis, nearest, or a CSV file with columns
    vertex,agent."""
    topology: Literal[
        "admm", "needed", "complete", "ring", "line", "star", "grid", "torus", "exponential", "random"
    ] = "admm"
    """Which agents talk: admm (designed: where they share data edges, and as little more as the gap needs), needed
    (where they share data edges), complete, ring, line, star, grid, torus, exponential or random; data edges that no
    link carries are dropped."""
    gap: float = Field(default=0.5, gt=0, le=1)
    """Spectral gap of a designed topology: the disagreement shrinks by 1 - gap in a round."""
    nonnegative: bool = False
    """No negative weights in a designed topology or by fastest mixing."""
    mixing: Literal["metropolis", "uniform", "fastest"] = "metropolis"
    """Weights of C on links that were not designed: metropolis, uniform or fastest."""
    keep_links: float = Field(default=1.0, gt=0, le=1)
    """Share of the links to keep, chosen at random but connected; below 1 the weights are those of --mixing."""
    layers: Annotated[str, AfterValidator(_known_layers)] = "gcn"
    """Kind of layers: gcn (D X W; of order 2 and more as polynomial), polynomial (the sum of D^p X W_p for p = 0 to P),
    chebyshev (the same in Chebyshev polynomials), linear (no hidden layer) or mlp (no graph)."""
    order: int = Field(default=1, ge=1, le=16)
    """Order P of a layer's filter."""
    hidden: Annotated[tuple[Width, ...], BeforeValidator(_widths), Field(max_length=MOST_LAYERS)] = (64,)
    """Widths of the hidden layers, as in 64 or 64,32."""
    activation: Literal["relu", "tanh", "elu", "identity"] = "relu"
    """After hidden layers: relu, tanh, elu or identity."""
    bias: bool = False
    """Give layers a bias."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Dropout between layers, and on the input unless that is set."""
    input_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout on the input."""
    shift: Literal["auto", "normalized", "random-walk", "laplacian", "scaled-laplacian", "identity"] = "auto"
    """Shift operator D: normalized, random-walk, laplacian, scaled-laplacian or identity; auto is scaled-laplacian
    for chebyshev and normalized otherwise."""
    update: Literal["gd", "momentum", "adam"] = "momentum"
    """Update rule: gd, momentum or adam."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Decay of momentum and of adam's first statistic."""
    step_size: float = Field(default=0.5, gt=0, le=MOST_FACTOR)
    """The centralised step size; gd and momentum use m times it at every agent."""
    step_decay: float = Field(default=0.0, ge=0, le=MOST_FACTOR)
    """Diminishing steps, step_size / (1 + step_decay t); 0 keeps them constant."""
    weight_decay: float = Field(default=0.0, ge=0, le=MOST_FACTOR)
    """Factor of half the squared weights in the loss."""
    batch: int = Field(default=0, ge=0, le=MOST_STEPS)
    """Time steps in a mini-batch, drawn from the seed; 0 takes all."""
    steps: int = Field(default=500, ge=0, le=MOST_STEPS)
    """Number of iterations; 0 writes the initial weights."""
    consensus_every: int = Field(default=1, ge=0, le=MOST_STEPS)
    """Mix weights every so many steps; 0 never."""
    compress: Annotated[str, Field(max_length=100), AfterValidator(_compression)] = "none"
    """Compress what consensus sends: none, power:RANK (low-rank differences), power:RANK,bits=8, choco:bits=8,
    choco:topk=SHARE or choco:randk=SHARE (public copies)."""
    boundary_bits: Literal[0, 16, 8] = 0
    """Send the rows between agents in 16 or 8 bits while training, rounded randomly so that their mean is kept; 0
    sends them as they are."""
    track: bool | None = None
    """Update by a tracked estimate of the whole gradient instead of each agent's own; by default adam does."""
    mix_first: bool = False
    """Mix the weights before the update (and its statistics) instead of after it."""
    initial_deviation: float = Field(default=1e-3, ge=0, le=MOST_FACTOR)
    """Standard deviation of the initial weights."""
    same_initial: bool | None = None
    """Start all agents from the same weights instead of each from its own; by default those that track do."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Decides everything random."""
    evaluate_every: int = Field(default=10, ge=1, le=MOST_STEPS)
    """Steps between two evaluations."""
    checkpoint_every: int = Field(default=100, ge=1, le=MOST_STEPS)
    """Steps between two checkpoints."""
    dtype: Literal["float32", "float64"] = "float32"
    """Numbers: float32 or float64."""
    threads: int = Field(default=0, ge=0, le=MOST_THREADS)
    """CPU threads; 0 takes one for small problems, which stay fast on a busy machine, and all for large ones."""
    baselines: bool = True
    """Train the centralised and the graph-less model for comparison."""

    @property
    def torch_dtype(self) -> torch.dtype:
        return torch.float64 if self.dtype == "float64" else torch.float32

    @property
    def consensus_method(self) -> ConsensusMethod:
        return parse_method(self.compress)

    @property
    def row_codec(self) -> RowCodec | None:
        """What happens to boundary rows on their way; None: nothing."""
        return ROW_CODECS[f"quantised-{self.boundary_bits}"] if self.boundary_bits else None

    @property
    def tracks(self) -> bool:
        """Whether updates are tracked; of one agent there is nothing to track."""
        return (self.update == "adam" if self.track is None else self.track) and self.agents > 1

    @property
    def starts_alike(self) -> bool:
        """Whether all agents have the same initial weights. Small ones decide which way a hidden unit goes: agents that
        start apart cancel each other's first steps, which adam makes as large as any."""
        return self.tracks if self.same_initial is None else self.same_initial

    @property
    def shift_kind(self) -> str:
        if self.shift != "auto":
            return self.shift
        return LAYERS[self.layers].shift


def make_settings(values: Mapping[str, Any], source: str = "settings") -> Settings:
    """Check a mapping; a mistake is told in one line for each key, with the nearest name for an unknown one."""
    known = tuple(Settings.model_fields)
    complaints = []
    for name in (name for name in values if name not in known):
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
        complaints.append(
            f"{source}: unknown setting {shown(name)}"
            + (f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}")
        )
        if len(complaints) == MOST_COMPLAINTS:
            break
    try:
        if not complaints:
            return Settings(**values)
    except ValidationError as error:
        for problem in error.errors(include_url=False)[:MOST_COMPLAINTS]:
            name = ".".join(str(part) for part in problem["loc"])
            said = problem["msg"].removeprefix("Value error, ")
            complaints.append(f"{source}: {name} = {shown(problem['input'])}: {said[:1].lower()}{said[1:]}")
    raise GossamerError("\n".join(complaints))


def read_stored_settings(values: Mapping[str, Any], source: str) -> Settings:
    """Settings that a run was begun with; one from before there were tracked updates goes on without them. A mistake in
    them is told in one line."""
    try:
        return make_settings({"track": False, **values}, source)
    except GossamerError as error:
        raise GossamerError(str(error).partition("\n")[0][:500]) from None


def read_settings(path: Path) -> dict[str, Any]:
    """The keys of a TOML settings file, unchecked. A dataset given as a path is relative to the file."""
    values = read_toml(path)
    for name in ("dataset", "assignment"):
        given = values.get(name)
        if given in DATASETS or given in ASSIGNMENTS:
            continue
        if isinstance(given, str) and not Path(given).is_absolute() and _exists(path.parent / given):
            values[name] = str(path.parent / given)
    return values


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for any file
        return False
