"""Frames over a socket pair: a kind, a small pickled value, and bytes inline or in an anonymous file."""

from __future__ import annotations

import enum
import pickle
import select
import socket
import struct
import sys
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.engine.processes.shared_blocks import SharedFile, mapped

if TYPE_CHECKING:
    from collections.abc import Callable

_HEADER = struct.Struct("<BBxxxxxxQQ")
"""Kind, whether the bytes are in a file that comes along, length of the value, length of the bytes."""


class Kind(enum.IntEnum):
    """What a frame means; the first group goes to the worker, the second comes from it."""

    HELLO = 1
    BLOCK = 2
    MORE = 3
    """The consumer has taken a piece: there is room for another."""
    CLOSE = 4

    OPENED = 11
    PIECE = 12
    DONE = 13
    FAILED = 14
    LOG = 15
    CLOSED = 16


@dataclass(frozen=True, slots=True)
class Frame:
    """One message as it was received."""

    kind: Kind
    value: Any
    data: pa.Buffer | None


class Wire:
    """One end of a socket pair. Any thread may send; one thread receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.RLock()
        self._outbox: deque[tuple[bytes, SharedFile | None]] = deque()
        self._sending = False
        self._lent: list[SharedFile] = []

    def send(self, kind: Kind, value: Any = None, data: bytes | SharedFile | None = None) -> None:
        """Send a frame and close the file that goes with it. Blocks while the peer does not read.

        Raises:
            OSError: the peer is gone.
        """
        body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        file = data if isinstance(data, SharedFile) else None
        inline = data if isinstance(data, bytes) else b""
        size = file.size if file else len(inline)
        message = _HEADER.pack(kind, file is not None, len(body), size) + body + inline
        with self._lock:
            self._outbox.append((message, file))
            if self._sending:
                return  # a signal handler or destructor that logs in the middle of a frame: its turn comes below
            self._sending = True
            try:
                while self._outbox:
                    self._write(*self._outbox.popleft())
            finally:
                self._sending = False

    def receive(self, while_idle: Callable[[], None] | None = None, *, every_secs: float = 1.0) -> Frame | None:
        """Wait for the next frame; None when the peer has closed its end (or died in the middle of a frame).

        `while_idle` is called about every `every_secs` as long as nothing comes, and may raise to end the wait.
        """
        if while_idle is not None:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            while not poll.poll(max(1, int(1000 * every_secs))):
                while_idle()
        try:
            header, fds, _, _ = socket.recv_fds(self._socket, _HEADER.size, 1)
            if not header:
                return None
            header += self._read(_HEADER.size - len(header))
            kind, in_file, body_size, size = _HEADER.unpack(header)
            body = self._read(body_size)
            inline = None if in_file else self._read(size)
        except (ConnectionResetError, EOFError):
            return None
        self._return_lent()
        data = mapped(SharedFile(fds[0], size)) if in_file else pa.py_buffer(inline) if inline else None
        return Frame(Kind(kind), pickle.loads(body), data)  # from our own process, over a private socket

    def close(self) -> None:
        """Close this end; safe to call twice."""
        self._socket.close()
        self._return_lent()

    def abandon(self) -> None:
        """Close this end in a forked child, where no other thread will ever release what it held; sending fails now."""
        self._lock = threading.RLock()
        self._outbox.clear()
        self._sending = False
        self._socket.close()

    def _write(self, message: bytes, file: SharedFile | None) -> None:
        view = memoryview(message)
        try:
            if file is not None:
                view = view[socket.send_fds(self._socket, [view], [file.fd]) :]
            self._socket.sendall(view)
        finally:
            if file is not None:
                self._lent.append(file)
                if sys.platform != "darwin":
                    # macOS may lose a descriptor that its sender closes before the peer has it; there it is kept
                    # until the peer's next frame.
                    self._return_lent()

    def _return_lent(self) -> None:
        while self._lent:
            self._lent.pop().close()

    def _read(self, size: int) -> bytes:
        """Read exactly `size` bytes, so that the descriptors of the next frame stay with its header."""
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)
