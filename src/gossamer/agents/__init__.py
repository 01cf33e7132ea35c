"""The agents' arithmetic: inference, back-propagation and consensus, without I/O (Sec. III, Algorithm 1).

The code is organised as follows:
    step             one iteration of Algorithm 1 as a generator: forward, backward, descend, consensus
    gradients        losses and exact gradients: forward and backward passes
    private_gradient differentially private gradients (DP-SGD) of each agent's own examples
    noisy_sums       sums over neighbours with noise, in place of rows (aggregation perturbation)
    encoding         what a frozen encoder makes of each vertex, and shares without edges between agents
    secret_streams   noise and samples that a secret of their owner decides
    host             a set of agents with their data, plans and weights
    training_options options of Algorithm 1
    hosted_topology  one topology laid out for a host
    share            the part of the data, of D and of C that a host's agents know
    added_vertices   the share of an agent with vertices that were not trained with
    planning         the same share, planned by sites that do not pool their data
    planning_exchanges  a site, and the messages that it expects while it plans
    planning_routes  routes between sites that share edges without a link
    site_sums        the same standardisation and weights, by sites that do not pool their data
    planning_checks  checks of the messages of planning sites
    passes           a plan with the hosted data laid out for it
    edge_counters    counters of dropout by edge
    inputs           a layer's input: rows, dropout, and the product with each agent's weights
    batches          mini-batches and chunks of time steps
    layout           a host's part of D, in the order of its rows
    plan             receptive fields and propagations, cut for a host
    propagation      D u, or the boundary (halo) rows themselves, and back (eq. (5)-(7), (12))
    links            the fewest message rows of a link, D_kz = R_kz S_kz
    step_links       boundary rows that are known in a step, where links may be down
    changing_rows    boundary rows over links that may be down
    relays           routes of rows between agents without a link
    exchange         outbox and inbox: messages between a host and its engine
    consensus        w_k = sum_z C_kz psi_z, plain and compressed; the table of methods
    quantisation     numbers in few bits, rounded to the nearest or stochastically
    row_codecs       codecs of boundary rows, and their table
    coded_rows       exchange of boundary rows through a row codec
    rules            update rules: gd, momentum, adam, and optimisers of torch.optim
    counter_rng      counter-based random numbers: dropout, initial weights
    salts            salts of dropout masks and quantisation noise from a secret of the row's owner
    dropout          entries of a layer's input zeroed, differentiable
    measures         evaluation of all vertices, disagreement, the mean of the weights
    scores           sums of losses, decisions and errors that hosts can add, and their scores
    ranking          area under the ROC curve and average precision, exact or from histograms
    selection        the weights of the best validation score
    sums             sums over all agents, along a spanning tree
    network_measures the mean of all agents' weights, their disagreement and g^t, by such sums
"""

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.gradients import backward, forward, loss_gradient
from gossamer.agents.host import Host, make_host
from gossamer.agents.links import Link, factor
from gossamer.agents.rules import UPDATE_RULES, make_rule
from gossamer.agents.share import MASKS
from gossamer.agents.step import training_step
from gossamer.agents.training_options import TrainingOptions

__all__ = [
    "MASKS",
    "UPDATE_RULES",
    "Host",
    "Inbox",
    "Link",
    "Outbox",
    "Phase",
    "TrainingOptions",
    "backward",
    "factor",
    "forward",
    "loss_gradient",
    "make_host",
    "make_rule",
    "training_step",
]
