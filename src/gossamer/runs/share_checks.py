"""Shares read from files: every array is checked in type, shape and range, and against the others, before anything is
planned from it."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.share import MASKS, Share, TopologyShare
from gossamer.data.example_weights import LARGEST_WEIGHT
from gossamer.data.site import SiteData
from gossamer.data.tasks import find_task
from gossamer.errors import naming
from gossamer.generators import drive
from gossamer.model import Network
from gossamer.model.gather import Gather, VertexMask, find_inputs
from gossamer.runs.arrays import INITIAL_PREFIX, INTS, StoredArrays, topology_prefix
from gossamer.runs.capacity import check_host
from gossamer.runs.link_checks import take_routes, take_senders, take_tree
from gossamer.runs.manifests import RankManifest, ShareSizes
from gossamer.runs.settings import Settings
from gossamer.runs.stages import build_network, find_input_width, uses_masks
from gossamer.runs.transforms import TRANSFORM_PREFIX, take_transform

ROW_ERROR = 1e-6  # by which the sum of a row of C may differ from 1 (A1)


def take_share(
    arrays: StoredArrays, agents: Sequence[int], sizes: ShareSizes, settings: Settings, known: set[int] | None
) -> Share:
    """Check and return the share of these agents, with vertices and weights of C of `known` agents only (None: any)."""
    m = sizes.num_agents
    vertices = arrays.take_vertices()
    n = len(vertices)
    routes = take_routes(arrays, agents, m, known)
    owner = _take_owner(arrays, n, m, known if known is None or routes is None else known | set(routes.far))
    hosted = np.isin(owner, agents)
    features, times, masks, targets = _take_data(arrays, int(hosted.sum()), sizes.num_classes)
    if masks["train"].sum() > sizes.num_labelled or hosted.sum() > sizes.num_vertices:
        arrays.refuse("mask.train", "no more examples and vertices than the manifest gives all agents", "more")
    outputs = sizes.num_classes if sizes.num_classes is not None else int(targets.shape[-1])
    network = build_network(find_input_width(int(features.shape[-1]), outputs, settings), outputs, settings)
    with naming(arrays.path):
        check_host(network, settings, len(agents), int(hosted.sum()))
    gathers = network.gathers
    labelled = np.asarray(masks["train"] if times is None else masks["train"].any(1))
    topologies: list[TopologyShare] = []
    while not topologies or f"{topology_prefix(len(topologies))}combination" in arrays:
        prefix = topology_prefix(len(topologies))
        entries = _take_entries(arrays, prefix, n, hosted)
        train = _take_fields(arrays, f"{prefix}field.train", gathers, n, entries, hosted, labelled)
        all_hosted = np.ones(hosted.sum(), dtype=bool)
        full = _take_fields(arrays, f"{prefix}field.full", gathers, n, entries, hosted, all_hosted)
        shape, mixes = (len(agents), m), settings.consensus_every > 0
        combination = _take_combination(arrays, f"{prefix}combination", shape, agents, known, mixes)
        senders = None
        if uses_masks(settings) and not isinstance(sizes, RankManifest):  # ranks of a job trust each other
            senders = take_senders(arrays, f"{prefix}senders", combination[0], agents[0], m)
        topologies.append(TopologyShare(entries, train, full, combination, senders))
    train_times = None if times is None else _take_train_times(arrays, times, masks["train"])
    hosting, slots = _take_hosting(arrays, sizes, [one.combination for one in topologies])
    initial = _take_initial(arrays, network, settings)
    transform = take_transform(arrays, TRANSFORM_PREFIX, int(features.shape[-1]), outputs)
    tree = take_tree(arrays, agents, m, known)
    example_weights = _take_example_weights(arrays, masks["train"], sizes.num_labelled)
    positive_weight = _take_positive_weight(arrays, targets)
    exchanges = sum(gather.powers[-1] for gather in gathers)
    if routes is not None and routes.train.shape[1] != exchanges:
        arrays.refuse("routes.train", f"rows of {exchanges} exchanges", f"of {routes.train.shape[1]}")
    arrays.finish()
    return Share(
        agents=tuple(agents),
        num_agents=m,
        num_vertices=sizes.num_vertices,
        num_labelled=sizes.num_labelled,
        num_classes=sizes.num_classes,
        vertices=vertices,
        owner=owner,
        topologies=tuple(topologies),
        features=features,
        targets=targets,
        masks=masks,
        train_times=train_times,
        hosting=hosting,
        slots=slots,
        initial=initial,
        transform=transform,
        routes=routes,
        tree=tree,
        example_weights=example_weights,
        positive_weight=positive_weight,
    )


def take_site(
    arrays: StoredArrays,
    agent: int,
    num_classes: int | None,
    settings: Settings,
    known: set[int],
    owners: set[int],
) -> tuple[SiteData, NDArray[np.float64] | None]:
    """Check and return the data of a site, with vertices of these `owners`, and its row of C if there is one, with
    weights of the `known` agents."""
    vertices = arrays.take_vertices()
    n = len(vertices)
    owner = _take_owner(arrays, n, 1 + max(owners), owners)
    own = owner == agent
    if not own.any():
        arrays.refuse("owner", f"at least one vertex of agent {agent}", "none")
    features, _, masks, targets = _take_data(arrays, int(own.sum()), num_classes)
    edges = arrays.take_within("edges", max(n, 1), None, 2)
    code = edges[:, 0] * n + edges[:, 1] if n < 2**31 else np.empty(0)
    if (edges[:, 0] >= edges[:, 1]).any() or (np.diff(code) <= 0).any():
        arrays.refuse("edges", "pairs i < j, ascending and each once", "others")
    if not own[edges].any(1).all():
        arrays.refuse("edges", f"edges that touch agent {agent}'s vertices", "one that does not")
    if not (own | np.isin(np.arange(n), edges)).all():
        arrays.refuse("vertices", "of other agents' vertices those with an edge to this one's", "another")
    weights = arrays.take_finite("weights", "float64", len(edges))
    if (weights <= 0).any():
        arrays.refuse("weights", "positive numbers", f"{weights.min()}")
    row, mixes = None, settings.consensus_every > 0
    if "combination" in arrays:
        row = _take_combination(arrays, "combination", (settings.agents,), [agent], known, mixes)
    sample_weights = None
    if "sample_weights" in arrays:
        sample_weights = _take_weights(arrays, "sample_weights", masks["train"].shape)
    arrays.finish()
    data = SiteData(vertices, owner, edges, weights, features, targets, masks, num_classes, sample_weights)
    network = build_network(int(features.shape[-1]), data.num_outputs, settings)
    with naming(arrays.path):
        check_host(network, settings, 1, int(own.sum()))
    return data, row


def _take_owner(arrays: StoredArrays, n: int, m: int, known: set[int] | None) -> NDArray[np.int64]:
    owner = arrays.take_within("owner", m, n)
    strangers = [] if known is None else sorted(set(np.unique(owner).tolist()) - known)
    if strangers:
        arrays.refuse("owner", f"the agents {sorted(known or ())}", f"agent {strangers[0]}")
    return owner


def _take_data(
    arrays: StoredArrays, rows: int, num_classes: int | None
) -> tuple[Any, int | None, dict[str, VertexMask], Any]:
    """Features, the length of their time axis, masks and targets."""
    features = arrays.take_features(rows)
    times = int(features.shape[1]) if features.ndim == 3 else None
    masks = arrays.take_masks(MASKS, rows, times)
    used = np.logical_or.reduce(list(masks.values()))
    return features, times, masks, arrays.take_targets(rows, times, num_classes, used)


def _take_entries(arrays: StoredArrays, prefix: str, n: int, hosted: VertexMask) -> tuple[Any, Any, Any]:
    row = arrays.take_within(f"{prefix}shift.row", max(n, 1), None, dtypes=INTS)
    column = arrays.take_within(f"{prefix}shift.column", max(n, 1), len(row), dtypes=INTS)
    values = arrays.take_finite(f"{prefix}shift.value", "float64", len(row))
    if (np.diff(row) < 0).any():
        arrays.refuse(f"{prefix}shift.row", "rows in ascending order", "others")
    if not (hosted[row] | hosted[column]).all():
        arrays.refuse(f"{prefix}shift.row", "entries that touch this share's vertices", "one that does not")
    return row, column, values


def _take_fields(
    arrays: StoredArrays,
    kind: str,  # field.train or field.full, behind the prefix of its topology
    gathers: Sequence[Gather],
    n: int,
    entries: tuple[Any, Any, Any],
    hosted: VertexMask,
    outputs: VertexMask,
) -> list[list[VertexMask]]:
    """U_0, ..., U_P of each layer: on hosted vertices those that D reaches from the `outputs`, as `walk_fields` finds
    them; on others' at least these."""
    fields = [
        list(arrays.take(f"{kind}.{layer}", "bool", gather.powers[-1] + 1, n)) for layer, gather in enumerate(gathers)
    ]
    row, column, values = entries
    last = f"{kind}.{len(gathers) - 1}"
    if not np.array_equal(fields[-1][0][hosted], outputs) or (kind.endswith("full") and not fields[-1][0].all()):
        arrays.refuse(last, "the vertices with outputs first", "others")
    for layer in reversed(range(len(gathers))):
        name, stored, gather = f"{kind}.{layer}", fields[layer], gathers[layer]
        remaining = iter(stored[1:])  # taken as true of others' vertices: only their agents know all that needs them

        def find_sources(rows: VertexMask, remaining: Iterator[VertexMask] = remaining) -> VertexMask:
            sources = np.zeros(n, dtype=bool)
            sources[column[rows[row] & (values != 0)]] = True
            return np.where(hosted, sources, sources | next(remaining))

        if not all(map(np.array_equal, stored, drive(gather.fields(stored[0]), find_sources))):
            arrays.refuse(name, "the vertices that the shift operator reaches", "others")
        if layer:
            inputs = find_inputs(gather, stored)
            if not np.array_equal(fields[layer - 1][0], inputs):
                arrays.refuse(name, "the vertices whose outputs the layer before it computes", "others")
    return fields


def _take_train_times(arrays: StoredArrays, times: int, train: VertexMask) -> NDArray[np.int64]:
    train_times = arrays.take_within("train_times", times, None)
    if (np.diff(train_times) <= 0).any() or not np.isin(np.flatnonzero(train.any(0)), train_times).all():
        arrays.refuse("train_times", "ascending time steps, all with a training example among them", "others")
    return train_times


def _take_combination(
    arrays: StoredArrays, name: str, shape: tuple[int, ...], agents: Sequence[int], known: set[int] | None, mixes: bool
) -> NDArray[np.float64]:
    """Rows of C: nonzero on the diagonal if the agents mix, and zero for agents that are not `known`."""
    C = arrays.take_finite(name, "float64", *shape)
    own = C.reshape(len(agents), -1)[range(len(agents)), list(agents)]
    if mixes and not own.all():
        zero = agents[np.flatnonzero(own == 0.0)[0]]
        arrays.refuse(name, "no zero on the diagonal of C (28)", f"one at agent {zero}")
    if (np.abs(C.sum(-1) - 1.0) > ROW_ERROR).any():
        arrays.refuse(name, "rows that sum to 1 (A1)", f"one that sums to {C.sum(-1).min():.6g}")
    strangers = [] if known is None else sorted(set(np.nonzero(C)[-1].tolist()) - known)
    if strangers:
        arrays.refuse(name, f"weights of the agents {sorted(known or ())}", f"one of agent {strangers[0]}")
    return C


def _take_weights(arrays: StoredArrays, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Weights of examples."""
    weights = arrays.take_finite(name, "float64", *shape)
    if weights.size and not 0 <= weights.min() <= weights.max() <= LARGEST_WEIGHT:
        arrays.refuse(name, f"numbers from 0 to {LARGEST_WEIGHT:.1g}", f"{weights.min():.3g} to {weights.max():.3g}")
    return weights


def _take_example_weights(arrays: StoredArrays, train: VertexMask, num_labelled: int) -> NDArray[np.float64] | None:
    """Weights e_i in the loss, if the share has any; those of all agents' training examples sum to their number."""
    if "example_weights" not in arrays:
        return None
    weights = _take_weights(arrays, "example_weights", train.shape)
    if weights[train].sum() > num_labelled * (1 + ROW_ERROR):
        arrays.refuse("example_weights", f"weights that sum to {num_labelled} over all agents", "larger ones")
    return weights


def _take_positive_weight(arrays: StoredArrays, targets: NDArray[Any]) -> NDArray[np.float64] | None:
    """Weights of positive labels, if the share has any."""
    if "positive_weight" not in arrays:
        return None
    if find_task(targets) != "multilabel":
        arrays.refuse("positive_weight", "weights of labels", "some beside targets that are none")
    weights = _take_weights(arrays, "positive_weight", targets.shape[1:])
    if not (weights > 0).all():
        arrays.refuse("positive_weight", "positive numbers", f"{weights.min()}")
    return weights


def _take_initial(arrays: StoredArrays, network: Network, settings: Settings) -> dict[str, NDArray[Any]] | None:
    """Weights that all agents start from, if the share has any."""
    shapes = network.shapes()
    if not any(f"{INITIAL_PREFIX}{name}" in arrays for name in shapes):
        return None
    return {
        name: arrays.take_finite(f"{INITIAL_PREFIX}{name}", settings.dtype, *shape) for name, shape in shapes.items()
    }


def _take_hosting(
    arrays: StoredArrays, sizes: ShareSizes, combinations: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.int64] | None, int | None]:
    """Rank of each agent, and the largest number of neighbours of an agent; a peer's share has neither."""
    if not isinstance(sizes, RankManifest):
        return None, None
    hosting = arrays.take_within("hosting", sizes.ranks, sizes.num_agents)
    if np.flatnonzero(hosting == sizes.rank).tolist() != sizes.agents:
        arrays.refuse("hosting", f"rank {sizes.rank} for the agents {sizes.agents} and no others", "others")
    links = np.stack(combinations) != 0
    links[:, np.arange(len(sizes.agents)), sizes.agents] = False
    slots = int(arrays.take_within("slots", sizes.num_agents, 1, least=int(links.sum(2).max()))[0])
    return hosting, slots
