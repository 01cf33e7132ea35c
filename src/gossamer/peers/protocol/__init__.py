"""The protocol between neighbours, without I/O or a clock: bytes in, bytes out, time given.

The code is organised as follows:
    member       one agent's side of the protocol
    config       parameters of an agent in the protocol, and what survives a crash
    exchanges    exchanges of one agent in one epoch
    resending    frames kept to be sent again
    facts        signed facts about agents
    signatures   Ed25519 signatures of agents
    magnitudes   bounds on the numbers that agents send
    wire         the wire format
"""
