"""Messages between neighbours over ZeroMQ with CURVE, and limits against floods.

The code is organised as follows:
    transport     interface of a transport
    curve         CURVE keys, and the keys that a listener lets in
    sockets       the transport over ZeroMQ: one listener, one outgoing connection a neighbour
    socket_options  options of every socket
    monitor       ZeroMQ's events about connections
    listener      back-pressure on new connections
    connections   limits on TCP connections
    addresses     addresses
    z85           keys as text
    keys          key files
"""
