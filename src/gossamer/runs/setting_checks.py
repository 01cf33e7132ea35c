"""Checks of settings: spellings that are taken, what is refused with a ValueError, and the lines that say so."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from gossamer.choices import SEQUENCE_FORMS, TOPOLOGY_NAMES, Choices, suggest
from gossamer.errors import GossamerError, shown
from gossamer.layer_specs import MOST_LAYERS
from gossamer.runs.hints import make_hint
from gossamer.runs.privacy_spec import parse_privacy

if TYPE_CHECKING:
    from gossamer.runs.settings import Settings

MOST_COMPLAINTS = 10  # of one file, in a message


def split_widths(value: Any) -> Any:
    """Accept 64, "64,32", "64x5" for five layers of 64, and [64, 32]."""
    if isinstance(value, int):
        return (value,)
    if isinstance(value, str):
        return tuple(width for part in value.replace(" ", "").split(",") if part for width in _repeat(part))
    return value


def _repeat(part: str) -> list[int]:
    width, times, count = part.partition("x")
    numbers = (width, count) if times else (width,)
    if not all(number.isdecimal() and len(number) < 10 and int(number) > 0 for number in numbers):
        raise ValueError(f"expected widths as in 64, 64,32 or 64x5, got {part[:80]!r}")
    if times and int(count) > MOST_LAYERS:
        raise ValueError(f"expected at most {MOST_LAYERS} layers, got {part[:80]!r}")
    return [int(width)] * (int(count) if times else 1)


def check_one_line(value: Any) -> Any:
    """Refuse control characters."""
    if value is not None and not value.isprintable():
        raise ValueError("expected text without control characters")
    return value


def check_topology(value: str) -> str:
    """Refuse what is neither a topology nor a sequence of links."""
    from gossamer.runs.link_sequences import parse_sequence

    try:
        if parse_sequence(value) is not None or value in TOPOLOGY_NAMES.names:
            return value
    except GossamerError as error:
        raise ValueError(str(error)) from None
    known = Choices(dict.fromkeys((*TOPOLOGY_NAMES.names, *SEQUENCE_FORMS.names), ""))
    kind, kinds = value.partition(":")[0], [name.partition(":")[0] for name in known.names]
    raise ValueError(f"input should be {known.list_names()}{suggest(kind, kinds)}")


def check_compression(value: str) -> str:
    """Refuse what no consensus method understands."""
    from gossamer.agents.consensus import parse_method

    try:
        parse_method(value)
    except GossamerError as error:
        raise ValueError(str(error)) from None
    return value


def check_privacy(value: str) -> str:
    """Refuse what is no level of privacy with its bounds."""
    try:
        parse_privacy(value)
    except GossamerError as error:
        raise ValueError(str(error)) from None
    return value


def check_protection(settings: "Settings") -> None:
    """Refuse settings under which a proof of privacy would not hold, or an encoder nothing to bound."""
    spec = settings.privacy_spec
    if settings.encodes and settings.layers == "mlp" and spec is None:
        raise ValueError("layers = 'mlp' sends no rows, so that an encoder bounds nothing; leave encoder out")
    if settings.encoder and spec is not None:
        raise ValueError("privacy has an encoder of its own; leave encoder out")
    if settings.encodes and settings.agents > 1 and not settings.consensus_every:
        raise ValueError(
            "consensus_every = 0 leaves every agent with an encoder of its own, which others cannot read; mix, or "
            "leave encoder and privacy out"
        )
    if settings.encodes and settings.initial is not None:
        raise ValueError(
            "initial weights are for networks without an encoder; leave out initial, or encoder and privacy"
        )
    if spec is None:
        return
    if settings.public_randomness:
        raise ValueError("privacy needs noise that others do not know; leave out public_randomness")
    if spec.level == "node":
        wrong = {
            "class_weights": settings.class_weights != "none",
            "standardise": settings.standardise,
            "keep = 'best'": settings.keep == "best",
        }
        for name, given in wrong.items():
            if given:
                raise ValueError(
                    f"{name} would release numbers of the training examples that no budget counts; leave it out with "
                    "privacy = 'node:...'"
                )


def check_codecs(bits: int, codec: str) -> None:
    """Refuse two codecs of the boundary rows."""
    if bits and codec not in ("none", f"quantised-{bits}"):
        raise ValueError(
            f"boundary_bits = {bits} and boundary_codec = {codec!r} ask for two codecs of the same rows; give one of "
            "them"
        )


def check_masking(consensus: str, compress: str) -> None:
    """Refuse to compress what is masked: pads cancel in sums of whole numbers alone."""
    if consensus == "masked" and compress != "none":
        raise ValueError(
            f"consensus = 'masked' sends numbers whose bits look random and compress = {compress!r} would change them; "
            "give compress = 'none', or consensus = 'plain'"
        )


def check_patience(patience: int, keep: str) -> None:
    """Refuse to wait for a better score where none is followed."""
    if patience and keep != "best":
        raise ValueError(
            f"patience = {patience} counts steps from the best validation score, which keep = {keep!r} does not "
            "follow; take keep = 'best'"
        )


def check_changes(settings: "Settings") -> None:
    """Refuse agents that come and go where what protects them needs to know all of them in advance."""
    if settings.evict_after is None:
        return
    fixed = {
        "consensus = 'masked'": settings.masks,
        f"encoder = {settings.encoder}": settings.encoder > 0,
        f"privacy = {settings.privacy!r}": settings.privacy != "none",
    }
    for name, given in fixed.items():
        if given:
            raise ValueError(
                f"{name} needs agents that stay the same, and with evict_after = {settings.evict_after:g} they may "
                "leave and join; give one of the two"
            )


def check_changing_links(settings: "Settings") -> None:
    """Refuse links that change from step to step where something needs to know them in advance."""
    from gossamer.runs.link_sequences import parse_sequence

    if parse_sequence(settings.topology) is None:
        return
    fixed = {
        "consensus = 'masked'": settings.consensus == "masked",
        f"compress = {settings.compress!r}": settings.compress != "none",
        f"encoder = {settings.encoder}": settings.encoder > 0,
        f"privacy = {settings.privacy!r}": settings.privacy != "none",
        f"evict_after = {settings.evict_after}": settings.evict_after is not None,
    }
    for name, given in fixed.items():
        if given:
            raise ValueError(
                f"{name} needs links that stay, and those of topology = {settings.topology!r} change from step to "
                "step; leave out one of the two"
            )
    if settings.keep_links != 1.0 and not settings.topology.startswith("failing:"):
        raise ValueError(
            f"keep_links = {settings.keep_links:g} is for links that stay, or fail at random; topology = "
            f"{settings.topology!r} says which there are"
        )


def check_relays(settings: "Settings") -> None:
    """Refuse relays where rows go over links alone."""
    if settings.lost_edges == "drop":
        return
    needs_links = {
        f"privacy = {settings.privacy!r} (noisy sums)": settings.privacy != "none",
        f"evict_after = {settings.evict_after} (agents that may leave)": settings.evict_after is not None,
    }
    for name, given in needs_links.items():
        if given:
            raise ValueError(f"with {name} rows go over links alone; give lost_edges = 'drop', or leave it out")


def describe_unknown(names: Iterable[str], known: Sequence[str], source: str) -> list[str]:
    """A line for each name that is not known, with the nearest one that is."""
    unknown = islice((name for name in names if name not in known), MOST_COMPLAINTS)
    hints = ((name, make_hint(str(name), known) or f"known: {', '.join(known)}") for name in unknown)
    return [f"{source}: unknown setting {shown(name)}; {hint}" for name, hint in hints]


def describe_wrong(problems: Sequence[Any], source: str) -> list[str]:
    """A line for each problem that pydantic has found."""
    complaints = []
    for problem in problems[:MOST_COMPLAINTS]:
        name = ".".join(str(part) for part in problem["loc"])
        said = problem["msg"].removeprefix("Value error, ")
        where = f"{source}: {name} = {shown(problem['input'])}" if name else source  # else of several at once
        complaints.append(f"{where}: {said[:1].lower()}{said[1:]}")
    return complaints
