"""The limit of benchmarks/peers.py, which starts it for each agent: an agent's sockets and nothing else.

    python benchmarks/bare_exchange.py PLAN AGENT

PLAN is a JSON file: `ports` and `keys` (public, secret) of the agents, `steps`, and `exchanges`, for each exchange of a
step and each receiver the bytes by sender. A process sends zeros of these sizes, waits for its neighbours' messages of
an exchange before it begins the next, and prints how far it is.
"""

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import zmq


def main(path: Path, agent: int) -> None:
    plan = json.loads(path.read_text())
    context = zmq.Context()
    listening, connected = opened(context, plan, agent)
    incoming = [exchange[str(agent)] for exchange in plan["exchanges"]]
    outgoing = [
        {receiver: bytes(by[str(agent)]) for receiver, by in exchange.items() if str(agent) in by}
        for exchange in plan["exchanges"]
    ]
    arrived: Counter[str] = Counter()  # messages, by sender
    wanted: Counter[str] = Counter()
    reported = 0.0
    for step in range(plan["steps"]):
        for sizes, messages in zip(incoming, outgoing, strict=True):
            for receiver, message in messages.items():
                connected[receiver].send(message, copy=False)
            wanted.update(sizes.keys())
            while any(arrived[sender] < wanted[sender] for sender in sizes):
                sender, _ = listening.recv_multipart(copy=False)
                arrived[sender.bytes.decode()] += 1
        if time.monotonic() > reported + 0.1:
            reported = time.monotonic()
            print(json.dumps({"step": step}), flush=True)
    context.destroy(linger=2000)


def opened(
    context: zmq.Context[zmq.Socket[bytes]], plan: dict[str, Any], agent: int
) -> tuple[zmq.Socket[bytes], dict[str, zmq.Socket[bytes]]]:
    """One listening socket, and one to each neighbour, encrypted; nobody asks whose key it is."""
    public, secret = (key.encode() for key in plan["keys"][agent])
    listening = context.socket(zmq.ROUTER)
    listening.curve_server, listening.curve_secretkey = True, secret
    listening.bind(f"tcp://127.0.0.1:{plan['ports'][agent]}")
    connected = {}
    for neighbour in sorted({z for exchange in plan["exchanges"] for z, by in exchange.items() if str(agent) in by}):
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.ROUTING_ID, str(agent).encode())
        socket.curve_publickey, socket.curve_secretkey = public, secret
        socket.curve_serverkey = plan["keys"][int(neighbour)][0].encode()
        socket.connect(f"tcp://127.0.0.1:{plan['ports'][int(neighbour)]}")
        connected[neighbour] = socket
    return listening, connected


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
