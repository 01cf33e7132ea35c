"""Types of what a run reports: the record of an evaluation, the messages of a step, the summary of `--json`."""

from typing import Literal, NotRequired, TypedDict

from gossamer.data.tasks import Task

Mask = Literal["train", "validation", "test"]
Reference = Literal["centralised", "graphless"]
ModelName = Literal["distributed", "centralised", "graphless"]
PhaseName = Literal["forward", "backward", "consensus"]


class RowRecord(TypedDict):
    """Boundary rows of the steps since the evaluation before, where links change (topology/deliveries.py)."""

    links_up: float  # share of the links
    arrived: float  # share of the pairs of agents that share data edges
    replaced: float
    mean_age: float
    largest_age: int


class Record(TypedDict):
    """One evaluation; the scores of a mask are its `loss` and others of the task (agents/scores.py)."""

    step: int
    score: str  # name of the one that is validated on
    train: dict[str, float]
    validation: dict[str, float]
    test: dict[str, float]
    disagreement: float
    stationarity: NotRequired[float]
    best_stationarity: NotRequired[float]
    best_step: NotRequired[int]  # of the best validation score so far
    rows: NotRequired[RowRecord]


def flatten_record(record: Record) -> dict[str, float]:
    """The numbers of an evaluation without its step, by names such as `validation/accuracy`."""
    flat: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= {f"{name}/{score}": number for score, number in value.items()}
        elif name != "step" and isinstance(value, (int, float)):
            flat[name] = value
    return flat


class ByteCount(TypedDict):
    """Bytes of a phase."""

    bytes: int


class RowCount(ByteCount):
    """Rows and bytes of a phase."""

    rows: int


class RelayedCount(RowCount):
    """Rows between agents without a link, each once, and the bytes on all links of their routes."""

    row_hops: int  # rows times the links that they take


class PlainCounts(TypedDict):
    """Bytes of a step in float32, neither compressed nor tracked."""

    forward: ByteCount
    backward: ByteCount
    consensus: ByteCount


class MessageCounts(TypedDict):
    """Messages of one step by phase and link, of one evaluation, and as the paper counts."""

    forward: RowCount
    backward: RowCount
    consensus: RowCount
    evaluation: RowCount
    relayed: RelayedCount  # of the forward and the backward pass, which include it
    plain: PlainCounts
    paper: RowCount
    links: list[dict[str, int]]  # sender, receiver, rows and bytes of each phase, shared edges
    total_bytes: NotRequired[int]  # of all steps, in a summary, unless agents have left or joined


class Description(TypedDict):
    """Data and topology of a run in numbers; of shares that were cut for ranks also what their steps send."""

    name: str
    num_vertices: int
    num_edges: int
    num_classes: int | None
    class_names: NotRequired[list[str] | None]
    task: NotRequired[Task | None]
    num_links: int
    added_links: int
    spectral_radius: float
    edges_kept: float
    edges_relayed: float
    messages: NotRequired[MessageCounts]
    between_ranks: NotRequired[dict[str, int]]  # bytes of a step by phase


class MembershipRecord(TypedDict):
    """A membership of a run whose agents may leave and join; None where it was not seen."""

    number: int
    members: list[int]  # ids of its agents
    from_step: int | None  # that training went on from
    seconds: float | None  # since the start, at which it went on
    stopped: float | None  # seconds before that, in which nobody made a step


class Summary(TypedDict, total=False):
    """The object of `--json`; a run that has not ended lacks some of it."""

    score: str  # name of the one that is validated on
    distributed: dict[str, dict[str, float]]  # scores of each mask
    centralised: dict[str, dict[str, float]]
    graphless: dict[str, dict[str, float]]
    disagreement: float
    stationarity: float
    best_stationarity: float
    steps: int
    best_step: int  # whose weights are kept
    edges_kept: float
    edges_relayed: float
    messages: MessageCounts
    rows: RowRecord  # of the last 1000 steps, where links change
    seconds: float
    memberships: list[MembershipRecord]
