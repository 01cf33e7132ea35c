"""Peers: one agent in a process of its own, trained with its neighbours over a network.

The code is organised as follows:
    process           the process of a peer: shard, transport and protocol joined
    driving           the loop of that process
    detouring         its transport, with detours around links that are down
    changing          the same where agents may leave and join
    departure         an agent's wish to leave
    identity          an agent's address and keys, and whom it admits to join
    member_work       an agent's work in one membership
    link_cuts         links of an agent that are cut for a rehearsal
    joining           exchanges with agents that have joined
    steps             numbers of the protocol's steps across memberships
    term_folders      folders and log of memberships
    term_numbers      messages by the numbers of a membership
    progress          reports of a peer's progress, and log lines
    agent_folders     an agent's shard, and in it the folder of its run
    histories         history of a run whose agents left and joined, read from their folders
    run_history       memberships of a run, from its agents' folders
    status            where an agent stands, read from its folder
    shard_work        training from a share that was cut
    staged_work       the same in two stages: an encoder, then the graph network
    site_work         planning at a site, whose share no one has cut, then training
    program           a training run as one generator of exchanges, and its schedule
    evaluation        evaluations of the whole network, and the end of a run
    results           the run directory that an agent leaves behind
    prediction        an agent's predictions after the run, from its neighbours' rows
    serving           forward passes after the run, on demand
    local_requests    requests to an agent's process from others on its machine
    sender_lists      signed lists of who sends to whom in masked consensus, between sites
    sessions          log of the sessions whose pads an agent has drawn
    recorder          messages that an agent receives, kept for an audit
    checkpoints       epoch and checkpoints on disk
    evaluation_log    evaluations of an agent, on disk while it trains
    refusals          log of refused messages
    local_processes   every agent as a process on this machine
    rehearsal         runs whose agents are killed, leave and join as a script says
    scheduling        batch scheduling of peers that share a machine
    protocol          the protocol between neighbours, without I/O or a clock
    network           messages over ZeroMQ: sockets, limits, addresses, keys
    shards            all that one agent needs, on disk
"""
