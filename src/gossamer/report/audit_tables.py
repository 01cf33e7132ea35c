"""Tables of `gossamer audit` in the terminal, and in plain words what they mean and what reduces it."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from gossamer.runs.evaluated_steps import evaluation_gap

if TYPE_CHECKING:
    from gossamer.privacy.audit import Audit

CONSENSUS = {
    "exact": "w",
    "approximate": "w, nearly",
    "noisy": "w, noisy",
    "hidden": "own w",
    "none": "nothing",
}


def show_audit(console: Console, audit: "Audit", name: str) -> None:
    """Print what each neighbour's vertices give away, then what it means."""
    who = _name_curious(audit)
    console.print(f"[bold]{name}: what {who} learns[/], following the protocol and reading what it receives")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)  # to fit in 80 characters
    for heading in ("about\nagent", "boundary\nvertices", "alone", "in\nsums", "rank", "identi-\nfiable",
                    "features\nrecovered", "labels\nrecovered", "consensus\nreveals"):  # fmt: skip
        table.add_column(heading, justify="left" if "consensus" in heading else "right", no_wrap=True)
    for one in audit.neighbours:
        table.add_row(
            str(one.agent),
            str(one.boundary),
            str(int(one.ranks.alone.sum())),
            str(int((~one.ranks.alone).sum())),
            f"{int(one.ranks.rank.max(initial=0))} of {audit.num_features}",
            str(int(one.ranks.identifiable.sum())),
            "" if audit.feature_attack is None else _of(audit.feature_attack.count(one.agent)),
            "" if audit.label_attack is None else _of(audit.label_attack.count(one.agent)),
            CONSENSUS[one.weights],
        )
    console.print(table)
    for line in describe_audit(audit):
        console.print(line, highlight=False, soft_wrap=True)


def describe_audit(audit: "Audit") -> list[str]:
    """The findings as sentences."""
    if audit.settings.privacy_spec is not None:
        return _describe_private(audit)
    seen, known = audit.boundary_vertices, audit.identifiable_vertices
    lines = [_describe_encoder(audit)] if audit.encoder is not None else []
    lines += [
        f"Algebra: over {'at most ' if audit.settings.patience else ''}{audit.steps} steps all {audit.num_features} "
        f"features of {known} of {seen} boundary vertices "
        "follow from the rows, for weights in general position."
    ]
    if not audit.judged:
        lines += _describe_own_folder(audit)
    elif audit.recorded:
        lines.append(f"Messages: as {_name_curious(audit)} recorded them in the run itself, not of a simulation.")
    attack = audit.feature_attack
    if attack is not None and audit.judged:
        found, tried = attack.count()
        guesses = ", ".join(f"{label.replace('_', ' ')} {rate:.1%}" for label, rate in attack.baselines.items())
        lines.append(
            f"Features: {attack.method} on the first {audit.attacked_steps} steps reconstructs {found} of {tried} "
            f"vertices tried{_percent(found, tried)}, every feature to 0.1 % of the largest. Baselines: {guesses}."
        )
        if tried < seen:
            lines.append(f"{tried} of {seen} boundary vertices were tried, drawn at random; --sample N tries more.")
    labels = audit.label_attack
    if labels is not None and labels.baseline is not None:
        found, tried = labels.count()
        lines.append(
            f"Labels: one backward message gives {found} of {tried} labels of boundary training vertices"
            f"{_percent(found, tried)}. Baseline, the most frequent class among them: {labels.baseline:.1%}."
        )
        if labels.counts and labels.counts_baseline is not None:
            near = sum(labels.counts.values()) / len(labels.counts)
            lines.append(
                f"Class counts: a neighbour's first gradient gives {near:.1%} of its training set's distribution over "
                f"classes. Baseline, the observer's own distribution: {labels.counts_baseline:.1%}."
            )
    if audit.membership is not None:
        one = audit.membership
        lines.append(
            f"Membership: {one.runs} shadow runs tell training vertices from others with an AUC of {one.auc:.3f} "
            f"(guessing: 0.5), and find {one.true_rate:.1%} of them at 1 % false alarms."
        )
    if audit.settings.masks:
        lines.append(_describe_masking(audit))
    lines.append("Which boundary vertices are training vertices stands in the plan. A stranger on the wire sees")
    lines[-1] += " ciphertext: sizes and times of messages, nothing else."
    lines.append(_advise(audit))
    return lines


def _describe_own_folder(audit: "Audit") -> list[str]:
    """What an agent's own folder shows: reconstructions without the truth."""
    if not audit.recorded:
        lines = ["No attack: it needs messages that this agent has recorded (gossamer peer --record)."]
    else:
        lines = [f"Messages: as {_name_curious(audit)} recorded them in the run itself, {audit.attacked_steps} steps."]
    if audit.feature_attack is not None:
        found, tried = audit.feature_attack.count()
        lines.append(f"Features: {audit.feature_attack.method} reconstructs {found} of {tried} vertices tried.")
    if audit.label_attack is not None:
        tried = audit.label_attack.count()[1]
        alone = sum(one.labels_alone for one in audit.neighbours)
        lines.append(
            f"Labels: one backward message gives a guess for each of {tried} boundary training vertices, and the label "
            f"itself for {alone} that stand alone."
        )
    lines.append(
        "Whether reconstructions are right only others know. This folder has one row of C: the attack takes others' "
        "weights to be the mean of those received, and unless this agent receives those of all, ranks count step 0 "
        "alone and are lower bounds. The directory of a launch has all of C."
    )
    return lines


def _describe_encoder(audit: "Audit") -> str:
    """Describe what is known of encodings."""
    encoder = audit.encoder
    assert encoder is not None
    attack = "" if encoder.found is None else f", and the attack finds {encoder.found} of {encoder.tried} tried"
    agents = ", ".join(map(str, encoder.separable))
    sums = f"weights of agents {agents} follow from its masked sums" if agents else "its masked sums show no agent's"
    return (
        f"Encoder: rows show features through {encoder.width} numbers a vertex, whatever the number of steps. Those of "
        f"{encoder.identifiable} vertices follow from the rows{attack}. Before, only weights were sent: {sums}."
    )


def _describe_private(audit: "Audit") -> list[str]:
    """What is proved of a private run, and what was tried."""
    spec = audit.settings.privacy_spec
    assert spec is not None
    what = "a vertex's features, label and out-edges" if spec.level == "node" else "an edge inside an agent"
    proved = "no epsilon, as there is no noise" if audit.epsilon is None else f"epsilon {audit.epsilon:.3g}"
    lines = [
        f"Proved: {proved} at delta {spec.delta:g}, for {what}; against whom: gossamer docs privacy. Rows are noisy "
        f"sums, sent {'once' if spec.hops == 1 else f'{spec.hops} times'} in the whole run, and none goes back."
    ]
    if audit.canaries is not None:
        one = audit.canaries
        lines.append(
            f"Canaries: {one.right} of {one.guesses} guesses about {one.canaries} canaries are right, which shows that "
            f"epsilon is at least {one.epsilon:.3g} (with 95 % confidence)."
        )
    labels = audit.label_attack
    if labels is not None:
        found, tried = labels.count()
        lines.append(
            f"Labels: least squares on the noisy sums gives {found} of {tried} labels of boundary training vertices"
            f"{_percent(found, tried)}. Baseline, the most frequent class among them: {labels.baseline:.1%}."
        )
    return lines


def _describe_masking(audit: "Audit") -> str:
    """Describe what masked consensus leaves to be learnt."""
    agents = ", ".join(map(str, audit.separable))
    found = f"psi of agents {agents} follows from the sums" if agents else "no agent's psi follows from the sums"
    pads = {None: "", 0: "; no pad was used twice"}.get(audit.repeated_pads, f"; {audit.repeated_pads} pads came twice")
    return f"Masked consensus: {found}{pads}."


def _advise(audit: "Audit") -> str:
    """List what reduces it."""
    settings = audit.settings
    ways = ["fewer edges between agents (--assignment metis)", "fewer hidden units (--hidden)"]
    if settings.public_randomness:
        ways.append("dropout masks of their owner (without --public-randomness)")
    if settings.consensus_every and settings.consensus == "plain" and settings.compress == "none":
        ways.append("weights hidden in sums (--consensus masked)")
    if evaluation_gap(settings) < settings.steps:
        ways.append("fewer evaluations (--evaluate-every)")
    return f"What reduces it, but proves nothing: {'; '.join(ways)}. Every line is explained in gossamer docs privacy."


def _name_curious(audit: "Audit") -> str:
    numbers = ", ".join(map(str, audit.curious))
    return f"agent {numbers}" if len(audit.curious) == 1 else f"the coalition of agents {numbers}"


def _of(count: tuple[int, int]) -> str:
    return f"{count[0]} of {count[1]}" if count[1] else "none"


def _percent(found: int, tried: int) -> str:
    return f" ({found / tried:.0%})" if tried else ""
