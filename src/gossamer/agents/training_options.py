"""Options of Algorithm 1, the same at all agents."""

from dataclasses import dataclass, field

from gossamer.agents.consensus import ConsensusMethod
from gossamer.agents.consensus.plain import PlainMethod
from gossamer.agents.row_codecs import RowCodec
from gossamer.agents.rules import UpdateRule
from gossamer.agents.salts import Secrets


@dataclass(frozen=True)
class PrivateSteps:
    """Options of private gradients (private_gradient.py), the same at all agents but for their secrets."""

    rate: float  # q, probability of an example to be in a step's sample
    clip: float  # c, bound on the norm of an example's gradient
    noise: float  # standard deviation of the noise over c
    stage: int  # number of the stage: no noise serves two
    secrets: Secrets  # of the hosted agents
    # Digest of the one hosted agent's data. With it, other data and other weights have other noise: a step that peers
    # repeat after one of them lost its disk must not repeat it. None in a simulation, whose noise would else depend on
    # the hosting.
    context: int | None = None


@dataclass(frozen=True)
class TrainingOptions:
    """Options of Algorithm 1."""

    rule: UpdateRule
    step_size: float  # of centralised training; see step.py for the agents'
    step_decay: float = 0.0  # eta^t = eta / (1 + step_decay t): 0 is constant, (C1); more is diminishing, (C2)
    weight_decay: float = 0.0
    decay_layers: str = "all"  # or "first": the layers whose weights decay
    consensus_every: int = 1  # 0: never
    mix_first: bool = False  # consensus before the update instead of after it (Sec. V-D)
    batch: int = 0  # time steps in a mini-batch; 0: all
    seed: int = 0
    track: bool = False  # gradient tracking: update by estimates of the whole gradient instead of each agent's own
    consensus: ConsensusMethod = field(default_factory=PlainMethod)
    row_codec: RowCodec | None = None  # of boundary rows; None: as they are
    keep_best: bool = False  # keep the weights of the best validation score
    private: PrivateSteps | None = None  # differentially private gradients; None: exact ones
