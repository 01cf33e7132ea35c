"""Settings as keyword arguments, for editors and type checkers (a test compares them with Settings)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from gossamer.layer_specs import LayerSpec, PygNetwork


class Options(TypedDict, total=False):
    """Keyword arguments of `gossamer.train`, and the options of a command; each is a field of Settings."""

    symmetrise: bool
    task: str
    split: int | None
    standardise: bool
    agents: int
    assignment: str
    topology: str
    gap: float
    nonnegative: bool
    mixing: str
    lost_edges: str
    missing: str
    max_age: int
    keep_links: float
    layers: str | Sequence[str | LayerSpec | Mapping[str, Any]]
    order: int | None
    hidden: int | str | Sequence[int]
    heads: int | None
    negative_slope: float
    attention_dropout: float
    aggregate: str
    root_weight: bool
    normalise: bool
    epsilon: float
    learn_epsilon: bool
    teleport: float
    residual: bool
    norm: str
    jump: str
    before: int | str | Sequence[int]
    after: int | str | Sequence[int]
    activation: str
    bias: bool
    dropout: float | None
    input_dropout: float | None
    shift: str
    preset: str
    update: str
    momentum: float
    step_size: float
    step_decay: float
    weight_decay: float
    decay_layers: str
    class_weights: str
    batch: int | None
    steps: int
    consensus: str
    consensus_every: int
    track: bool | None
    mix_first: bool
    keep: str
    patience: int
    score: str
    initial_deviation: float | None
    same_initial: bool | None
    initial: str | Path | Mapping[str, Any] | PygNetwork | None
    encoder: int
    encoder_steps: int
    privacy: str
    seed: int
    public_randomness: bool
    compress: str
    boundary_bits: int
    boundary_codec: str
    evaluate_every: int | None
    measure: str
    evict_after: float | None
    checkpoint_every: int
    dtype: str
    threads: int
    baselines: bool
