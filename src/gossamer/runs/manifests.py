"""Typed models of the JSON files that Gossamer writes and reads back: keys, types and bounds."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from gossamer.data.tasks import Task
from gossamer.layer_specs import MOST_HEADS, MOST_LAYERS
from gossamer.runs.documents import Document

SHARD_FORMAT = 2  # format version of a shard's manifest
MAX_EXACT_INTEGER = 2**53  # whole numbers up to here are exact in every reader of JSON


Count = Annotated[int, Field(ge=0, le=MAX_EXACT_INTEGER)]
Number = Annotated[int, Field(ge=0, lt=2**31)]  # of an agent or a rank
NumClasses = Annotated[int, Field(ge=1, lt=2**31)] | None  # of labels there may be one
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
LayerWidth = Annotated[int, Field(ge=1, lt=2**31)]  # of a layer
LayerWidths = Annotated[list[LayerWidth], Field(max_length=MOST_LAYERS)]
Score = float | None  # None: not finite when it was written, such as the score on an empty mask


class ShareSizes(Document):
    """Sizes of the whole problem, which every share states."""

    num_agents: Annotated[int, Field(ge=1, lt=2**31)]
    num_vertices: Annotated[int, Field(ge=1, le=MAX_EXACT_INTEGER)]
    num_labelled: Annotated[int, Field(ge=1, le=MAX_EXACT_INTEGER)]
    num_classes: NumClasses


class Manifest(Document):
    """Keys of every shard.json."""

    format: Literal[2]  # SHARD_FORMAT
    checksums: dict[str, Digest]


class RankManifest(Manifest, ShareSizes):
    """shard.json of a rank of a cluster."""

    rank: Number
    ranks: Annotated[int, Field(ge=1, lt=2**31)]
    agents: Annotated[list[Number], Field(min_length=1)]


class DataIdentity(Document):
    name: str
    fingerprint: Annotated[str, Field(max_length=1000)]
    class_names: list[str] | None = None  # None for real-valued targets
    task: Task | None = None  # None in files from before it was stored


class Volume(Document):
    """Volume of the messages of a phase."""

    rows: Count
    bytes: Count


class RelayedVolume(Volume):
    """Rows that were relayed, each once, and their bytes on all links of their routes."""

    row_hops: Count


class StoredByteCount(Document):
    bytes: Count


class PhaseBytes(Document):
    forward: StoredByteCount
    backward: StoredByteCount
    consensus: StoredByteCount


class PhaseCounts(Document):
    forward: Count
    backward: Count
    consensus: Count


class LinkVolume(Document):
    sender: Number
    receiver: Number
    forward_rows: Count
    forward_bytes: Count
    backward_rows: Count
    backward_bytes: Count
    consensus_rows: Count
    consensus_bytes: Count
    shared_edges: Count


class Messages(Document):
    """Messages of one step (runs/message_counts.py), and of one evaluation."""

    forward: Volume
    backward: Volume
    consensus: Volume
    evaluation: Volume
    relayed: RelayedVolume = RelayedVolume(rows=0, bytes=0, row_hops=0)
    plain: PhaseBytes  # of the same step in float32, neither compressed nor tracked
    paper: Volume  # as the paper counts: B_kz rows for every propagation, forward only
    links: list[LinkVolume]


class RankPlan(Document):
    """Description, for the ranks of a cluster, of the deployment from which their shares were cut."""

    name: str
    num_vertices: Count
    num_edges: Count
    num_classes: NumClasses
    class_names: list[str] | None = None
    task: Task | None = None
    num_links: Count
    added_links: Count
    spectral_radius: Annotated[float, Field(ge=0)]
    edges_kept: Annotated[float, Field(ge=0, le=1)]
    edges_relayed: Annotated[float, Field(ge=0, le=1)] = 0.0
    messages: Messages
    between_ranks: PhaseCounts


class RunManifest(Document):
    """run.json. A file of an older version may lack settings; they have the defaults of that version."""

    format: Literal[1]  # documents.FORMAT
    settings: dict[str, Any]
    data: DataIdentity
    versions: dict[str, str] = Field(default_factory=dict)
    step: Count = 0
    complete: bool = False
    plan: RankPlan | None = None
    agent: Number | None = None  # whose weights the directory holds; None: those of all
    secrets: bool = False  # dropout and quantisation noise came from those in secrets.json
    summary: dict[str, Any]


class ModelHeader(Document):
    """Header of a model file: the network whose weights it holds."""

    layers: Annotated[str, Field(max_length=8000)]
    order: Annotated[int, Field(ge=1, le=16)] | None
    hidden: LayerWidths
    heads: Annotated[int, Field(ge=1, le=MOST_HEADS)] | None = None  # this and what follows: defaults of older files
    negative_slope: Annotated[float, Field(ge=0)] = 0.2
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    aggregate: str = "mean"
    root_weight: bool = True
    normalise: bool = False
    epsilon: float = 0.0
    learn_epsilon: bool = False
    teleport: Annotated[float, Field(ge=0, lt=1)] = 0.1
    residual: bool = False
    norm: str = "none"
    jump: str = "none"
    before: LayerWidths = []
    after: LayerWidths = []
    activation: str
    bias: bool
    dropout: Annotated[float, Field(ge=0, lt=1)]
    input_dropout: Annotated[float, Field(ge=0, lt=1)] | None
    shift: str
    inputs: LayerWidth  # features, of an encoder if there is one
    outputs: LayerWidth
    weights: str
    pyg: Annotated[str, Field(max_length=100)] | None
    class_names: list[str] | None
    standardised: bool = False  # features and targets, by the file beside it
    task: Task | None = None  # None in files from before it was stored
    encoder: Annotated[int, Field(ge=0, lt=2**31)] = 0  # width of its encodings; 0: the layers take features


class MaskScores(Document):
    """Scores of a mask (agents/scores.py): loss, accuracy or mean squared error, and others if they are known."""

    loss: Score
    accuracy: Score = None
    macro_f1: Score = None
    micro_f1: Score = None
    roc_auc: Score = None
    average_precision: Score = None
    roc_auc_binned: Score = None
    average_precision_binned: Score = None
    mse: Score = None
    mae: Score = None
    rmse: Score = None
    r2: Score = None

    @model_validator(mode="after")
    def _check_metric(self) -> "MaskScores":
        if {"accuracy", "mse"} <= self.model_fields_set or not {"accuracy", "mse"} & self.model_fields_set:
            raise ValueError("expected either accuracy or mse")
        return self


class RowStates(Document):
    """Boundary rows of the steps before an evaluation, where links change."""

    links_up: Annotated[float, Field(ge=0, le=1)]
    arrived: Annotated[float, Field(ge=0, le=1)]
    replaced: Annotated[float, Field(ge=0, le=1)]
    mean_age: Annotated[float, Field(ge=0)]
    largest_age: Count


class Evaluation(Document):
    """A line of metrics.jsonl in a run directory. One of an older version lacks the validated score's name."""

    step: Count
    score: str = ""
    train: MaskScores
    validation: MaskScores
    test: MaskScores
    disagreement: Score
    stationarity: Score = None
    best_stationarity: Score = None
    best_step: Count | None = None
    rows: RowStates | None = None


class ReferenceEvaluation(Evaluation):
    """A line of references.jsonl."""

    model: Literal["centralised", "graphless"]  # graphless: an mlp, the same network with D = I
