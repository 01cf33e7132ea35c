"""A listening socket that Linux can be told to let new connections wait for: packets are dropped and come again.

Elsewhere it does nothing. Connections that were accepted go on as they are.
"""

import contextlib
import ctypes
import os
import socket
import struct
import sys

_ATTACH, _DETACH = 26, 27  # Linux's SO_ATTACH_FILTER and SO_DETACH_FILTER
_DROP_ALL = struct.pack("=HBBI", 0x06, 0, 0, 0)  # a program of the packet filter: return 0


class Listener:
    """By ZeroMQ's file number, of which a number of its own is made."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, os.dup(number))
        self._program = ctypes.create_string_buffer(_DROP_ALL, len(_DROP_ALL))
        self.paused = False

    def pause(self, wanted: bool) -> None:
        if sys.platform != "linux":
            return
        self.paused = wanted
        program = struct.pack("@HP", 1, ctypes.addressof(self._program))
        with contextlib.suppress(OSError):  # it is a courtesy to the arithmetic, and no bound depends on it
            self._socket.setsockopt(socket.SOL_SOCKET, _ATTACH if wanted else _DETACH, program)

    def close(self) -> None:
        self._socket.close()
