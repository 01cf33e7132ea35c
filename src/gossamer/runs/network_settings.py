"""Settings of the network: its layers, the blocks around them, and its shift operator."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from gossamer import choices as known
from gossamer.layer_specs import (
    MOST_FACTOR,
    MOST_HEADS,
    MOST_LAYERS,
    MOST_ORDER,
    MOST_WIDTH,
    NetworkOptions,
    check_norm,
    normalise_layers,
    read_options,
)
from gossamer.runs import setting_checks as checks
from gossamer.runs.deployment_settings import DeploymentSettings

Width = Annotated[int, Field(ge=1, le=MOST_WIDTH)]
Widths = Annotated[tuple[Width, ...], BeforeValidator(checks.split_widths), Field(max_length=MOST_LAYERS)]


class NetworkSettings(DeploymentSettings):
    """The part of Settings that describes the network, after that of the deployment."""

    layers: Annotated[str, BeforeValidator(normalise_layers), Field(max_length=8000)] = Field(
        default="gcn",
        description=f"Kind of layers: {known.LAYER_NAMES}; or a list, as in gat:heads=4,width=32/gcn "
        "(gossamer docs layers).",
    )
    order: int | None = Field(
        default=None,
        ge=1,
        le=MOST_ORDER,
        description="Order P of a layer's filter; by default 1, of sgc 2, of appnp 10.",
    )
    hidden: Widths = Field(default=(64,), description="Widths of the hidden layers, as in 64, 64,32 or 64x5.")
    heads: int | None = Field(
        default=None,
        ge=1,
        le=MOST_HEADS,
        description="Heads of gat and gatv2, side by side in a layer's width, averaged in the last layer; by default "
        "up to 8 as they fit, and 1.",
    )
    negative_slope: float = Field(default=0.2, ge=0, le=MOST_FACTOR, description="Slope of LeakyReLU in gat and gatv2.")
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="Dropout of attention in gat and gatv2.")
    aggregate: Annotated[str, AfterValidator(known.AGGREGATE_NAMES.check)] = Field(
        default="mean", description=f"What sage makes of neighbours: {known.AGGREGATE_NAMES}."
    )
    root_weight: bool = Field(default=True, description="sage and gated add the vertex itself, by weights of its own.")
    normalise: bool = Field(default=False, description="Rows of sage get the norm 1.")
    epsilon: float = Field(
        default=0.0, ge=-MOST_FACTOR, le=MOST_FACTOR, description="gin counts the vertex itself 1 + epsilon times."
    )
    learn_epsilon: bool = Field(default=False, description="Train gin's epsilon.")
    teleport: float = Field(default=0.1, ge=0, lt=1, description="Share of a vertex itself in a step of appnp.")
    residual: bool = Field(default=False, description="Add a hidden graph layer's input to its output.")
    norm: Annotated[str, AfterValidator(check_norm)] = Field(
        default="none", description=f"Normalise hidden graph layers before their activation: {known.NORM_NAMES}."
    )
    jump: Annotated[str, AfterValidator(known.JUMP_NAMES.check)] = Field(
        default="none",
        description=f"Jumping knowledge, from which a linear map makes the output: {known.JUMP_NAMES}.",
    )
    before: Widths = Field(default=(), description="Widths of layers without the graph before the graph layers.")
    after: Widths = Field(
        default=(), description="The same after them; then all graph layers are hidden, as many as there are widths."
    )
    activation: Annotated[str, AfterValidator(known.ACTIVATION_NAMES.check)] = Field(
        default="relu", description=f"After hidden layers: {known.ACTIVATION_NAMES}."
    )
    bias: bool = Field(default=True, description="Give layers a bias.")
    dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Dropout between layers, and on the input unless that is set; by default 0.5, for real values 0.",
    )
    input_dropout: float | None = Field(default=None, ge=0, lt=1, description="Dropout on the input.")
    shift: Annotated[str, AfterValidator(known.SHIFT_NAMES.check)] = Field(
        default="auto", description=f"Shift operator D: {known.SHIFT_NAMES}."
    )

    @property
    def shift_kind(self) -> str:
        """Name of the shift operator; that of the layers where none is chosen."""
        from gossamer.model.network import check_shift, find_shift

        return find_shift(self.network) if self.shift == "auto" else check_shift(self.network, self.shift)

    @property
    def network(self) -> NetworkOptions:
        """Description of the network."""
        return read_options(self)
