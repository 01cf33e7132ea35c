"""The protocol between neighbours, without I/O or a clock: bytes in, bytes out, time given.

The code is organised as follows:
    member       one agent's side of the protocol
    group            memberships that follow each other
    history          the memberships of a run and their certificates
    group_config     parameters of an agent in them, and the interface of its persistent state
    notices          decisions on their way to neighbours that may not know them
    changes          what follows a membership: who is gone, who leaves, who joins
    paxos            one decision of the members, by single-decree Paxos
    terms            memberships and decisions as bytes
    change_messages  votes, decisions and requests to join
    config       parameters of an agent in the protocol, and the interface of its persistent state
    exchanges    exchanges of one agent in one epoch
    relaying     exchanges between agents without a link, in rounds over others
    detours      messages around a link that is down
    boxes        sealed boxes, which others pass on and cannot read
    resending    retransmission: requests and their timeout, frames held, rate limits
    statements   signed statements of agents about themselves
    signatures   Ed25519 signatures
    pads         pads of masked consensus, which pairs of agents share
    magnitudes   bounds on the numbers that agents send
    wire         the wire format
"""
