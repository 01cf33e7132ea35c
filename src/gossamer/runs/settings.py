"""Settings: the one typed object behind the command line, a settings file and the Python call.

Settings are checked without PyTorch, so that a mistake shows at once; what needs it is imported where it is used.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, model_validator

from gossamer import choices as known
from gossamer.errors import GossamerError
from gossamer.layer_specs import MOST_FACTOR, MOST_WIDTH
from gossamer.runs import setting_checks as checks
from gossamer.runs.network_settings import NetworkSettings
from gossamer.runs.presets import fill_from_preset, fit_defaults
from gossamer.runs.privacy_spec import PrivacySpec, parse_privacy

if TYPE_CHECKING:
    import torch

    from gossamer.agents.consensus import ConsensusMethod
    from gossamer.agents.row_codecs import RowCodec
    from gossamer.data.tasks import Task

MOST_STEPS, MOST_THREADS = 10**12, 1024
OptionalText = Annotated[str | None, Field(max_length=4000), AfterValidator(checks.check_one_line)]
StepCount = Annotated[int, Field(ge=0, le=MOST_STEPS)]


class Settings(NetworkSettings):
    """Settings of a run. Every field is an option of `gossamer train` and a key of a settings file."""

    # No docstrings of attributes, for which pydantic reads this file again, no schema before its use: faster commands
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    preset: Annotated[str, AfterValidator(known.PRESET_NAMES.check)] = Field(
        default="default", description=f"Values of the settings that are not given: {known.PRESET_NAMES}."
    )
    update: Annotated[str, AfterValidator(known.UPDATE_NAMES.check)] = Field(
        default="adam", description=f"Update rule: {known.UPDATE_NAMES}."
    )
    momentum: float = Field(default=0.9, ge=0, lt=1, description="Decay of momentum and of adam's first statistic.")
    step_size: float = Field(
        default=0.01,
        gt=0,
        le=MOST_FACTOR,
        description="The centralised step size; gd and momentum use m times it at every agent.",
    )
    step_decay: float = Field(
        default=0.0, ge=0, le=MOST_FACTOR, description="Diminishing steps, step_size / (1 + step_decay t); 0: constant."
    )
    weight_decay: float = Field(
        default=5e-4, ge=0, le=MOST_FACTOR, description="Factor of half the squared weights in the loss."
    )
    decay_layers: Annotated[str, AfterValidator(known.DECAY_NAMES.check)] = Field(
        default="first", description=f"Layers whose weights decay: {known.DECAY_NAMES}."
    )
    class_weights: Annotated[str, AfterValidator(known.CLASS_WEIGHT_NAMES.check)] = Field(
        default="none", description=f"Weights of classes or labels in the loss: {known.CLASS_WEIGHT_NAMES}."
    )
    batch: int | None = Field(
        default=None,
        ge=0,
        le=MOST_STEPS,
        description="Time steps in a mini-batch, drawn from the seed; 0 takes all, by default 64 of 256 and more.",
    )
    steps: StepCount = Field(default=200, description="Number of iterations; 0 writes the initial weights.")
    consensus: Annotated[str, AfterValidator(known.CONSENSUS_NAMES.check)] = Field(
        default="plain", description=f"How weights are mixed: {known.CONSENSUS_NAMES}."
    )
    consensus_every: StepCount = Field(default=1, description="Mix every so many steps; 0 never.")
    track: bool | None = Field(
        default=None,
        description="Update by a tracked estimate of the whole gradient instead of each agent's own; by default "
        "adam and other scale-free rules do.",
    )
    mix_first: bool = Field(
        default=False, description="Mix the weights before the update (and its statistics) instead of after it."
    )
    keep: Annotated[str, AfterValidator(known.KEEP_NAMES.check)] = Field(
        default="best", description=f"Weights to keep at the end: {known.KEEP_NAMES}."
    )
    patience: StepCount = Field(default=0, description="Stop when the best score is so many steps old; 0 never does.")
    score: Annotated[str, AfterValidator(known.SCORE_NAMES.check)] = Field(
        default="auto", description=f"Score to validate on: {known.SCORE_NAMES}."
    )
    initial_deviation: float | None = Field(
        default=None,
        ge=0,
        le=MOST_FACTOR,
        description="Standard deviation of initial weights; by default by a layer's widths (Glorot and Bengio 2010).",
    )
    same_initial: bool | None = Field(
        default=None,
        description="Start all agents from the same weights instead of each from its own; by default those that "
        "track do.",
    )
    initial: OptionalText = Field(default=None, description="Start from the weights of a model file or run directory.")
    encoder: Annotated[int, Field(ge=0, le=MOST_WIDTH)] = Field(
        default=0,
        description="Numbers a vertex of a frozen encoder, through which alone rows show features; 0: no encoder.",
    )
    encoder_steps: StepCount = Field(default=200, description="Number of iterations that train the encoder.")
    privacy: Annotated[str, Field(max_length=200), AfterValidator(checks.check_privacy)] = Field(
        default="none", description=f"Differential privacy: {known.PRIVACY_FORMS}."
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="Decides everything random.")
    public_randomness: bool = Field(
        default=False,
        description="Peers draw dropout and quantisation noise from the seed, as train does, not from owners' secrets.",
    )
    compress: Annotated[str, Field(max_length=100), AfterValidator(checks.check_compression)] = Field(
        default="none", description=f"Compress what consensus sends: {known.COMPRESSION_FORMS}."
    )
    boundary_bits: Annotated[int, AfterValidator(known.BOUNDARY_BITS.check)] = Field(
        default=0,
        description=f"Bits of a number in boundary rows while training, as the codec has them: {known.BOUNDARY_BITS}.",
    )
    boundary_codec: Annotated[str, AfterValidator(known.ROW_CODEC_NAMES.check)] = Field(
        default="none", description=f"Codec of the boundary rows that agents send: {known.ROW_CODEC_NAMES}."
    )
    evaluate_every: int | None = Field(
        default=None,
        ge=1,
        le=MOST_STEPS,
        description="Steps between two evaluations; by default 1 for the first 20 steps, then 10.",
    )
    measure: Annotated[str, AfterValidator(known.MEASURE_NAMES.check)] = Field(
        default="auto", description=f"When peers measure their disagreement and g^t: {known.MEASURE_NAMES}."
    )
    evict_after: float | None = Field(
        default=None,
        ge=0,
        le=MOST_FACTOR,
        description="Peers may leave and join while they train, and one that is silent for so many seconds is removed; "
        "0 removes none. By default the agents of a run stay the same.",
    )
    checkpoint_every: int = Field(default=100, ge=1, le=MOST_STEPS, description="Steps between two checkpoints.")
    dtype: Annotated[str, AfterValidator(known.DTYPE_NAMES.check)] = Field(
        default="float32", description=f"Numbers: {known.DTYPE_NAMES}."
    )
    threads: int = Field(
        default=0,
        ge=0,
        le=MOST_THREADS,
        description="CPU threads; 0 takes one for small problems, fast on a busy machine too, all for large ones.",
    )
    baselines: bool = Field(default=True, description="Train the centralised and the graph-less model for comparison.")

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: Any) -> Any:
        return fill_from_preset(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _check_together(self) -> "Settings":
        checks.check_codecs(self.boundary_bits, self.boundary_codec)
        checks.check_patience(self.patience, self.keep)
        checks.check_masking(self.consensus, self.compress)
        checks.check_protection(self)
        checks.check_changes(self)
        checks.check_relays(self)
        checks.check_changing_links(self)
        return self

    def fit_to(self, task: "Task", times: int | None) -> "Settings":
        """The settings with defaults that depend on the data: its task and its number of time steps with a training
        example, if there is a time axis."""
        fitting = fit_defaults(task, times)
        return self.model_copy(update={name: value for name, value in fitting.items() if getattr(self, name) is None})

    @property
    def torch_dtype(self) -> "torch.dtype":
        import torch

        return cast(torch.dtype, getattr(torch, self.dtype))

    @property
    def consensus_method(self) -> "ConsensusMethod":
        from gossamer.agents.consensus import MaskedMethod, parse_method

        return MaskedMethod() if self.masks else parse_method(self.compress)

    @property
    def masks(self) -> bool:
        """Agents send masked weights; one agent sends none, nor do those that never mix."""
        return self.consensus == "masked" and self.agents > 1 and self.consensus_every > 0

    @property
    def encodes(self) -> bool:
        """An encoder is trained before the graph network."""
        return self.encoder > 0 or self.privacy != "none"

    @property
    def privacy_spec(self) -> PrivacySpec | None:
        return parse_privacy(self.privacy)

    @property
    def row_codec(self) -> "RowCodec | None":
        """Codec of boundary rows; None: they are sent as they are."""
        from gossamer.agents.row_codecs import ROW_CODECS

        name = f"quantised-{self.boundary_bits}" if self.boundary_bits else self.boundary_codec
        return None if name == "none" else ROW_CODECS[name]

    @property
    def tracks(self) -> bool:
        """Updates follow a tracked gradient; of one agent there is nothing to track."""
        return (self.is_scale_free if self.track is None else self.track) and self.agents > 1

    @property
    def is_scale_free(self) -> bool:
        """The update rule moves weights by as much however small the gradient is, as Adam does."""
        from gossamer.agents.rules import make_rule

        return make_rule(self.update).scale_free

    @property
    def starts_alike(self) -> bool:
        """All agents have the same initial weights. Small ones decide which way a hidden unit goes: agents that start
        apart cancel each other's first steps, which adam makes as large as any."""
        return self.tracks if self.same_initial is None else self.same_initial


def make_settings(values: Mapping[str, Any], source: str = "settings") -> Settings:
    """Settings from a mapping; an error has a line for each wrong key, with the nearest name for an unknown one."""
    complaints = checks.describe_unknown(values, tuple(Settings.model_fields), source)
    try:
        if not complaints:
            return Settings(**values)
    except ValidationError as error:
        complaints = checks.describe_wrong(error.errors(include_url=False), source)
    raise GossamerError("\n".join(complaints))
