"""The thread that reads ZeroMQ's reports outlives what they bring, and a mistake in it is not kept quiet."""

import contextlib
import socket

import pytest
import zmq
from peers.processes import wait_until

from gossamer.peers.network.monitor import ConnectionMonitor


@pytest.mark.parametrize("error", [OSError("gone"), KeyError("a mistake")])
def test_reports_are_read_whatever_a_handler_does_with_them(error: Exception) -> None:
    seen = []

    def fail(kind: int, number: int) -> None:
        seen.append(kind)
        raise error

    context = zmq.Context()
    listening = context.socket(zmq.ROUTER)
    watcher = ConnectionMonitor(context, lambda: None)
    watcher.follow(listening, zmq.EVENT_ACCEPTED, fail)
    watcher.start()
    port = listening.bind_to_random_port("tcp://127.0.0.1")
    with contextlib.ExitStack() as held:
        for _ in range(3):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
        wait_until(lambda: len(seen) == 3, "all reports are read")
    watcher.stop()
    watcher.stop()
    assert watcher.error is (None if isinstance(error, OSError) else error)
    listening.close(linger=0)
    context.term()
