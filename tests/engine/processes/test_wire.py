import os
import socket
import threading

import pytest

from headrace.engine.processes.shared_blocks import pack_bytes
from headrace.engine.processes.shared_files import SharedFile
from headrace.engine.processes.wire import Kind, Wire


@pytest.fixture
def ends():
    left, right = (Wire(s) for s in socket.socketpair())
    yield left, right
    left.close()
    right.close()


def test_frames_keep_their_order_their_values_and_their_files(ends):
    left, right = ends
    big = os.urandom(300_000)
    sent = [(Kind.HELLO, {"a": 1}, b"inline"), (Kind.BLOCK, None, big), (Kind.MORE, None, None), (Kind.BLOCK, 2, big)]

    def send():
        for kind, value, data in sent:
            left.send(kind, value, data and pack_bytes(data))

    sender = threading.Thread(target=send)
    sender.start()
    frames = [right.receive() for _ in sent]
    sender.join()
    assert [(f.kind, f.value, f.data and f.data.to_pybytes()) for f in frames] == sent


def test_a_value_larger_than_the_sockets_buffer_arrives(ends):
    left, right = ends
    sender = threading.Thread(target=left.send, args=(Kind.DONE, "x" * 3_000_000))
    sender.start()
    frame = right.receive()
    sender.join()
    assert frame.value == "x" * 3_000_000


def test_the_senders_file_is_closed(ends):
    left, right = ends
    file = pack_bytes(bytes(100_000))
    assert isinstance(file, SharedFile)
    left.send(Kind.BLOCK, None, file)
    right.receive()
    right.send(Kind.MORE)
    left.receive()  # where sending lends the file, the answer gives it back
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file.fd)


def test_a_closed_peer_is_the_end(ends):
    left, right = ends
    left.send(Kind.MORE)
    left.close()
    assert right.receive().kind is Kind.MORE
    assert right.receive() is None
    with pytest.raises(OSError, match="Broken pipe"):
        for _ in range(3):
            right.send(Kind.MORE)


def test_a_peer_that_died_in_the_middle_of_a_frame_is_the_end():
    left, right = socket.socketpair()
    left.sendall(b"\x02\x00")
    left.close()
    wire = Wire(right)
    assert wire.receive() is None
    wire.close()


def test_waiting_can_be_ended(ends):
    class EnoughError(Exception):
        pass

    def enough():
        raise EnoughError

    with pytest.raises(EnoughError):
        ends[0].receive(enough)


def test_threads_do_not_mix_their_frames(ends):
    left, right = ends
    senders = [
        threading.Thread(target=lambda n=n: [left.send(Kind.LOG, (n, i, "x" * 5_000)) for i in range(50)])
        for n in range(4)
    ]
    for sender in senders:
        sender.start()
    got = [right.receive().value[:2] for _ in range(200)]
    for sender in senders:
        sender.join()
    assert sorted(got) == [(n, i) for n in range(4) for i in range(50)]


def test_a_value_that_sends_while_it_is_sent_waits_its_turn(ends, monkeypatch):
    left, right = ends
    write = left._write

    def interrupted(message, file):
        # As a signal handler would that logs in the middle of a frame.
        monkeypatch.setattr(left, "_write", write)
        left.send(Kind.LOG, "handler")
        write(message, file)

    monkeypatch.setattr(left, "_write", interrupted)
    left.send(Kind.DONE, "work")
    assert [right.receive().value for _ in range(2)] == ["work", "handler"]
