"""C between the agents of a run, by the settings or by the user, certified and held to Assumption A (Sec. III, IV)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer import topology
from gossamer.errors import GossamerError
from gossamer.runs.link_sequences import (
    FAILING,
    SWITCHING,
    SequenceChoice,
    find_base,
    make_partners,
    parse_sequence,
    read_switching,
)
from gossamer.runs.settings import Settings
from gossamer.topology import Progress


def connect(
    shared: NDArray[Any], settings: Settings, progress: Progress | None = None, **design_options: Any
) -> topology.Certificate:
    """The topology that the settings ask for, given B [m, m]: designed, or links of a family with mixing weights; of
    links that change C is that of all links, or the mean of C^t and its transpose."""
    changing = parse_sequence(settings.topology)
    if changing is not None:
        return _connect_changing(changing, shared, settings, progress, **design_options)
    choice = topology.TOPOLOGIES[settings.topology]
    if choice.design is not None and len(shared) > 1:
        made = choice.design(
            shared, settings.gap, nonnegative=settings.nonnegative, progress=progress, **design_options
        )
        designed = topology.certify_design(made)
        if settings.keep_links == 1.0:
            return designed
        links = topology.drop_links(designed.links, settings.keep_links, settings.seed)
    else:
        links = _links(choice, shared, settings)
    weights = topology.MIXING_WEIGHTS[settings.mixing](links, settings.nonnegative)
    return topology.certify(weights, links, topology.needed_links(shared))


def _connect_changing(
    choice: SequenceChoice, shared: NDArray[Any], settings: Settings, progress: Progress | None, **design_options: Any
) -> topology.Certificate:
    m, needed = len(shared), topology.needed_links(shared)
    if choice.kind == FAILING:
        base = connect(shared, settings.model_copy(update={"topology": choice.base}), progress, **design_options)
        return replace(base, sequence=topology.Failing(base.combination, choice.probability, settings.seed))
    if choice.kind == SWITCHING:
        steps = read_switching(Path(choice.file), m)
        links = np.asarray(steps.any(0))
        C = topology.MIXING_WEIGHTS[settings.mixing](links, settings.nonnegative)
        return topology.certify(C, links, needed, sequence=topology.Switching(C, steps))
    partners = make_partners(choice, m, settings.seed)
    return topology.certify(average_combination(partners), needed | partners.links, needed, sequence=partners)


def average_combination(partners: topology.LinkSequence) -> NDArray[np.float64]:
    """Mean of C^t and its transpose over a period, or E[C^t] of random pairs, which is E[C^T C]."""
    if partners.period is None:
        return partners.mean_square()
    mean = np.mean([partners.combination(step) for step in range(partners.period)], axis=0)
    return np.asarray((mean + mean.T) / 2)


def _links(choice: topology.Topology, shared: NDArray[Any], settings: Settings) -> topology.Links:
    """Links of a topology that is not designed, fewer if the settings keep a fraction of them."""
    links = topology.check_agent_graph(choice.links(shared, settings.seed), len(shared))
    return topology.drop_links(links, settings.keep_links, settings.seed)


def certify_given(
    combination: NDArray[np.float64], shared: NDArray[np.int64], settings: Settings
) -> topology.Certificate:
    """The certificate of a C that the user gives, on the links of the topology that the settings name.

    Where the topology is to be designed, any two agents may talk, and the links are those of C.
    """
    m = len(shared)
    try:
        C = np.asarray(combination, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GossamerError(f"C must be a matrix of numbers, {m} x {m}: {error}") from None
    if C.shape != (m, m):
        raise GossamerError(f"C must be {m} x {m}, one row for each agent, got {C.shape}")
    if not np.isfinite(C).all():
        raise GossamerError("C holds NaN or infinite entries")
    changing = parse_sequence(settings.topology)
    if changing is not None and changing.kind != FAILING:
        found = connect(shared, settings)
        if not np.array_equal(C, found.combination):
            raise GossamerError(
                f"--topology {settings.topology} chooses C in every step, and the C that is given is not its own; "
                "leave it out, or choose --topology failing:P, which takes one"
            )
        return found
    choice = topology.TOPOLOGIES[find_base(settings.topology)]
    links = topology.links_of(C) if choice.design is not None else _links(choice, shared, settings)
    sequence = None if changing is None else topology.Failing(C, changing.probability, settings.seed)
    return topology.certify(C, links, topology.needed_links(shared), sequence=sequence)


def require_assumptions(certificate: topology.Certificate, settings: Settings) -> None:
    """Refuse a C that breaks Assumption A or (28); without consensus (A2) and (28) do not matter. Of links that change
    the sequence of all C^t must contract."""
    found = certificate.assumptions
    if not found.a1:
        raise GossamerError(
            f"C must be symmetric and doubly stochastic (A1): it differs from its transpose by "
            f"{found.asymmetry:.2g} and its row sums from 1 by {found.row_error:.2g}"
        )
    if not found.a3:
        raise GossamerError(
            f"C must be 0 between agents without a link (A3): it has weights up to {found.off_links:.2g} where "
            f"--topology {settings.topology} has none; give a C on its links, or --topology admm, which allows any"
        )
    if not settings.consensus_every:
        return
    if certificate.sequence is not None:
        factor = topology.measure_contraction(certificate.sequence, settings.consensus_every)
        if factor >= 1.0 - 1e-12:
            raise GossamerError(
                f"the links of --topology {settings.topology} do not bring the agents together: their contraction is "
                f"{factor:.4f}, expected below 1; give more links, or --nonnegative to a designed "
                "topology, whose negative weights can spread agents apart while other links are down"
            )
        return
    if not found.keeps_own:
        raise GossamerError(
            "C has a zero on its diagonal, and (28) wants C_kk != 0: every agent keeps a share of its own weights; "
            "use (C + I) / 2, for one"
        )
    if not found.a2:
        if found.components > 1:
            raise GossamerError(
                f"the agents fall into {found.components} groups that share no data edge and so never agree (A2); "
                "choose --topology admm, ring or complete, fewer agents, or --consensus-every 0"
            )
        raise GossamerError(
            f"C does not contract (A2): the spectral radius of C - 11^T/m is "
            f"{found.spectral_radius:.4f}, expected below 1"
        )
