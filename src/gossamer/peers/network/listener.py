"""Back-pressure on new connections: a packet filter on the listening socket drops their packets, which TCP sends again.

Linux only; elsewhere nothing is paused. Connections that were accepted are not affected.
"""

import contextlib
import ctypes
import os
import socket
import struct
import sys

_ATTACH, _DETACH = 26, 27  # Linux's SO_ATTACH_FILTER and SO_DETACH_FILTER
_DROP_ALL = struct.pack("=HBBI", 0x06, 0, 0, 0)  # a packet filter program: return 0


class Listener:
    """The listening socket of ZeroMQ, by a duplicate of its file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, os.dup(descriptor))
        self._program = ctypes.create_string_buffer(_DROP_ALL, len(_DROP_ALL))
        self.paused = False

    def pause(self) -> None:
        self._set_filter(True)

    def resume(self) -> None:
        self._set_filter(False)

    def _set_filter(self, paused: bool) -> None:
        if sys.platform != "linux":
            return
        self.paused = paused
        program = struct.pack("@HP", 1, ctypes.addressof(self._program))
        with contextlib.suppress(OSError):  # pausing saves processor time; no limit depends on it
            self._socket.setsockopt(socket.SOL_SOCKET, _ATTACH if paused else _DETACH, program)

    def close(self) -> None:
        self._socket.close()
