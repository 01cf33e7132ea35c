"""Frames and statuses, told apart."""

from gossamer.peers.protocol.wire import FRAME


def is_frame(message: bytes) -> bool:
    """Return whether a message that `encode` made is a frame."""
    return message[1] == FRAME
