"""Clients of `weft run --sockets` that connect and never finish their request: they cost the server
no threads and a bounded number of descriptors, and its real clients are served meanwhile."""

import os
import selectors
import socket
import struct
import threading
import time

import cases
import harness
from harness import need

_OURS = ("--sockets",)
_AT_ONCE = 300  # half-spoken clients; more than the server keeps
_MOST_KEPT = 256  # of arriving_clients.cc
_SPARE = 24  # threads and descriptors of real clients, and of their ends

_SERVER = """
import selectors, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=128)
waiting = None
if sys.argv[2] == "polls":
    listener.setblocking(False)
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    if waiting:
        waiting.select()
    try:
        client, _ = listener.accept()
    except BlockingIOError:
        continue
    client.setblocking(True)
    with client:
        client.sendall(client.recv(4))
"""

_CLIENT = """
import socket, sys
for _ in range(5):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as server:
        server.sendall(b"ping")
        print(server.recv(4).decode(), flush=True)
"""

_KEY = b"MPA ID Req Frame"
_BEGINNINGS = (
    b"", b"M", _KEY[:15], _KEY, _KEY + b"\x50\x02",
    _KEY + struct.pack(">BBH", 0x50, 2, 40), _KEY + struct.pack(">BBH", 0x50, 2, 40) + bytes(39),
)


class _Flood:
    """Keeps that many half-spoken connections open: each that the server closes is replaced."""

    def __init__(self, port):
        self._port, self._made, self._ends = port, 0, False
        self._open = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        for _ in range(_AT_ONCE):
            self._add()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends = True
        self._thread.join()
        for key in list(self._open.get_map().values()):
            key.fileobj.close()
        self._open.close()

    def _add(self):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", self._port))
        self._made += 1
        self._open.register(client, selectors.EVENT_READ | selectors.EVENT_WRITE,
                            _BEGINNINGS[self._made % len(_BEGINNINGS)])

    def _run(self):
        while not self._ends:
            for key, events in self._open.select(0.1):
                try:
                    if events & selectors.EVENT_WRITE:
                        key.fileobj.send(key.data)
                        self._open.modify(key.fileobj, selectors.EVENT_READ, b"")
                        continue
                    if key.fileobj.recv(100):
                        continue
                except OSError:
                    pass
                self._open.unregister(key.fileobj)
                key.fileobj.close()
                self._add()


def _threads(side):
    return len(os.listdir(f"/proc/{side.pid}/task"))


def _descriptors(side):
    return len(os.listdir(f"/proc/{side.pid}/fd"))


def _real_clients(stage, port, turn):
    client = stage.start(f"real clients {turn}", "python3", "-c", _CLIENT, port, options=_OURS)
    client.finish()
    need(client.lines.count("ping") == 5, "the real clients were not all served")


def _settles(server, threads, descriptors):
    """Every half-spoken client is gone."""
    end = time.monotonic() + harness.WAIT_S
    while _threads(server) > threads + _SPARE or _descriptors(server) > descriptors + _SPARE:
        need(time.monotonic() < end, f"{_threads(server)} threads and {_descriptors(server)} "
                                     f"descriptors remain, of {threads} and {descriptors}")
        time.sleep(0.1)


def _attack(manner, first):
    def run(stage):
        """`first`: the half-spoken clients come before any real one."""
        port = harness.free_port()
        server = stage.start("server", "python3", "-c", _SERVER, port, manner, options=_OURS)
        server.expect("^ready$")
        if not first:
            _real_clients(stage, port, "before")
        threads, descriptors = _threads(server), _descriptors(server)
        with _Flood(port):
            for turn in range(2):
                _real_clients(stage, port, f"during {turn}")
                need(_threads(server) <= threads + _SPARE,
                     f"{_threads(server)} threads, {threads} before")
                need(_descriptors(server) <= descriptors + _MOST_KEPT + _SPARE,
                     f"{_descriptors(server)} descriptors, {descriptors} before")
        _real_clients(stage, port, "after")
        _settles(server, threads, descriptors)

    return run


cases.add("half_spoken.blocks", _attack("blocks", first=False))
cases.add("half_spoken.polls", _attack("polls", first=False))
cases.add("half_spoken.come_first", _attack("blocks", first=True))
