"""Consensus: methods that bring the agents' weights closer to their mean (eq. (16)), joined by name in one table.

The code is organised as follows:
    method            the consensus seam: a method as a value, and set up for a host
    plain             w_k = sum_z C_kz psi_z
    masked            the same sum of padded integers, of which no single one can be read
    power_gossip      PowerGossip: low-rank differences across a link
    choco_gossip      CHOCO-Gossip: compressed changes against public copies
    codecs            how CHOCO-Gossip compresses changes
    neighbour_slots   one slot for each neighbour of an agent

A new method is one file here and one line in CONSENSUS_METHODS; `--compress NAME:WORDS` chooses it. `--consensus
masked` chooses the masked sum, which takes none of them.
"""

from gossamer.agents.consensus.choco_gossip import CHOCO_GOSSIP
from gossamer.agents.consensus.masked import MaskedMethod
from gossamer.agents.consensus.method import Advice, Consensus, ConsensusKind, ConsensusMethod, HostedCombination
from gossamer.agents.consensus.plain import PLAIN_CONSENSUS
from gossamer.agents.consensus.power_gossip import POWER_GOSSIP
from gossamer.errors import GossamerError

CONSENSUS_METHODS: dict[str, ConsensusKind] = {
    "none": PLAIN_CONSENSUS,
    "power": POWER_GOSSIP,
    "choco": CHOCO_GOSSIP,
}


def parse_method(text: str) -> ConsensusMethod:
    """The method that `name` or `name:word,word` stands for."""
    name, _, rest = text.partition(":")
    try:
        if name in CONSENSUS_METHODS:
            return CONSENSUS_METHODS[name].parse(rest.split(",") if rest else [])
    except ValueError:
        pass
    *others, last = (syntax for kind in CONSENSUS_METHODS.values() for syntax in kind.syntax())
    raise GossamerError(
        f"expected a compression among {', '.join(others)} or {last} (with a share and gamma above 0 and at most 1), "
        f"got {text!r}"
    )


__all__ = [
    "CONSENSUS_METHODS",
    "Advice",
    "Consensus",
    "ConsensusKind",
    "ConsensusMethod",
    "HostedCombination",
    "MaskedMethod",
    "parse_method",
]
