"""Messages between neighbours over ZeroMQ with CURVE, and the bounds that hold against strangers.

The code is organised as follows:
    transport     what a peer asks of a network
    sockets       ZeroMQ sockets: one listener, one outgoing connection a neighbour
    monitor       ZeroMQ's events of connections
    listener      a listening socket that can let new connections wait
    connections   limits on TCP connections
    addresses     addresses
    z85           keys as text
    keys          key files
"""
