"""Options of every ZeroMQ socket: queues, time-outs, keep-alive."""

from typing import Any

import zmq

SEND_QUEUE = 64  # messages to a neighbour that wait to be sent
# The kernel finds lost connections: ZeroMQ's own heartbeats abort the process when one is reset that it does not read
# from at that moment (github.com/zeromq/libzmq/issues/4364), which a neighbour can bring about.
KEEPALIVE = (
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, 2),
    (zmq.TCP_KEEPALIVE_INTVL, 2),
    (zmq.TCP_KEEPALIVE_CNT, 4),
    (zmq.TCP_MAXRT, 10_000),
)


def make_socket(context: Any, kind: int) -> Any:
    """A socket with the options of all."""
    socket = context.socket(kind)
    for option, value in (
        (zmq.SNDHWM, SEND_QUEUE),
        (zmq.RECONNECT_IVL, 50),
        (zmq.RECONNECT_IVL_MAX, 1000),
        (zmq.HANDSHAKE_IVL, 10000),
        (zmq.IPV6, 1),
        *KEEPALIVE,
    ):
        socket.setsockopt(option, value)
    return socket
