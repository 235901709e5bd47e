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

from headrace.engine.processes.memory_maps import mapped
from headrace.engine.processes.pool import Loan, Received
from headrace.engine.processes.shared_files import SharedFile

if TYPE_CHECKING:
    from collections.abc import Callable

_HEADER = struct.Struct("<BBHIQQ")
"""Kind, whether a file comes along, number of the pooled buffer, where the bytes begin in the file, lengths of the
value and of the bytes. Without a file and a buffer the bytes come in front of the value."""


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
        self._received: dict[int, Received] = {}
        """Buffers of the other end's pool, by number."""
        self._sending = False
        self._lent: list[SharedFile] = []
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def send(self, kind: Kind, value: Any = None, data: bytes | SharedFile | Loan | None = None) -> None:
        """Send a frame and close the file that goes with it. Blocks while the peer does not read.

        Raises:
            OSError: the peer is gone.
        """
        body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        number, file, inline = 0, None, b""
        if isinstance(data, Loan):
            number, file = data.place.number, data.place.handed_over()
        elif isinstance(data, SharedFile):
            file = data
        elif data is not None:
            inline = data
        size = len(inline) if data is None or isinstance(data, bytes) else data.size
        offset = 0 if file is None else file.offset
        message = _HEADER.pack(kind, file is not None, number, offset, len(body), size) + inline + body
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
            while not self._poll.poll(max(1, int(1000 * every_secs))):
                while_idle()
        try:
            header, fds, _, _ = socket.recv_fds(self._socket, _HEADER.size, 1)
            if not header:
                return None
            header += self._read(_HEADER.size - len(header))
            kind, with_file, number, offset, body_size, size = _HEADER.unpack(header)
            inline = 0 if with_file or number else size
            rest = self._read(inline + body_size)
        except (ConnectionResetError, EOFError):
            return None
        self._return_lent()
        if number:
            if with_file:
                self._received[number] = Received(fds[0])
            data = self._received[number].look_at(size)
        elif with_file:
            data = mapped(SharedFile(fds[0], size, offset))
        else:
            data = pa.py_buffer(rest).slice(0, inline) if inline else None
        return Frame(
            Kind(kind), pickle.loads(memoryview(rest)[inline:]), data
        )  # from our own process, over a private socket

    def wait_for_end(self, peer_lives: Callable[[], bool]) -> None:
        """Return when the peer has closed its end, or is asked about it once a second and lives no more.

        Reads nothing, so that another thread may receive meanwhile.
        """
        poll = select.poll()
        poll.register(self._socket, 0)  # an end is told of without being asked for
        while peer_lives():
            if any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(1000)):
                return

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
        data = self._socket.recv(size, socket.MSG_WAITALL) if size else b""
        if len(data) == size:
            return data
        parts = bytearray(data)  # a signal came, or the end
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)
