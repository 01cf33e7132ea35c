"""Settings of the deployment: data, its assignment to agents, and their topology."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from gossamer import choices as known
from gossamer.runs import setting_checks as checks

MOST_AGENTS = 1 << 16
MOST_SPLITS = 1 << 20
MOST_AGE = 1000
Text = Annotated[str, Field(max_length=4000), AfterValidator(checks.check_one_line)]  # a name or a path


class DeploymentSettings(BaseModel):
    """The part of Settings that describes data, agents and their links."""

    dataset: Text = Field(
        default="digits",
        description="A data set's name, with parameters if it is generated, an .npz file or a folder of CSV tables.",
    )
    symmetrise: bool = Field(
        default=False,
        description="Take directed edges of a file as undirected, with the mean weight of both directions, instead of "
        "refusing them.",
    )
    task: Annotated[str, AfterValidator(known.TASK_NAMES.check)] = Field(
        default="auto", description=f"What to predict: {known.TASK_NAMES}."
    )
    split: int | None = Field(
        default=None,
        ge=0,
        le=MOST_SPLITS,
        description="Number of the fixed split of data that has several, from 0; by default 0 of a data set by name, "
        "and of a file the seed modulo their number.",
    )
    standardise: bool = Field(
        default=True,
        description="Centre and scale features and real-valued targets by moments over all agents; features with many "
        "zeros are scaled only.",
    )
    agents: int = Field(default=10, ge=1, le=MOST_AGENTS, description="Number of agents m; 1 is the centralised model.")
    assignment: Text = Field(
        default="bfs",
        description=f"Who holds which vertex: {', '.join(known.ASSIGNMENT_NAMES.describe())}, or a CSV file with "
        "columns vertex,agent.",
    )
    topology: Annotated[Text, AfterValidator(checks.check_topology)] = Field(
        default="admm",
        description=f"Which agents talk: {known.TOPOLOGY_NAMES}. From step to step: {known.SEQUENCE_FORMS}.",
    )
    gap: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Spectral gap of a designed topology: the disagreement shrinks by 1 - gap in a round.",
    )
    nonnegative: bool = Field(
        default=False, description="No negative weights in a designed topology or by fastest mixing."
    )
    mixing: Annotated[str, AfterValidator(known.MIXING_NAMES.check)] = Field(
        default="metropolis", description=f"Weights of C on links that were not designed: {known.MIXING_NAMES}."
    )
    lost_edges: Annotated[str, AfterValidator(known.LOST_EDGES_NAMES.check)] = Field(
        default="relay",
        description=f"Data edges between agents without a link: {known.LOST_EDGES_NAMES}.",
    )
    missing: Annotated[str, AfterValidator(known.MISSING_NAMES.check)] = Field(
        default="relay",
        description=f"Boundary rows over a link that is down in a step: {known.MISSING_NAMES}.",
    )
    max_age: int = Field(default=10, ge=1, le=MOST_AGE, description="Steps that a last row may be old.")
    keep_links: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Share of the links to keep, chosen at random but connected, with the weights of --mixing.",
    )
