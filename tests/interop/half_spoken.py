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

# `forked`: a child accepts, from the socket that it shares with its parent.
_SERVER = """
import os, selectors, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=128)
waiting = None
if sys.argv[3:] == ["forked"] and os.fork() > 0:
    os.wait()
if sys.argv[2] == "polls":
    listener.setblocking(False)
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
print("ready", os.getpid(), flush=True)
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


def _threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def _descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


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


def _attack(*manner, first=False):
    def run(stage):
        """`first`: the half-spoken clients come before any real one."""
        port = harness.free_port()
        side = stage.start("server", "python3", "-c", _SERVER, port, *manner, options=_OURS)
        server = int(side.expect(r"^ready (\d+)$")[1])
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


cases.add("half_spoken.blocks", _attack("blocks"))
cases.add("half_spoken.polls", _attack("polls"))
cases.add("half_spoken.come_first", _attack("blocks", first=True))
cases.add("half_spoken.forked_blocks", _attack("blocks", "forked"))
cases.add("half_spoken.forked_polls", _attack("polls", "forked"))

_FEW_DESCRIPTORS = 128  # so that 16 clients may wait
_SILENT = 20

_LIMITED_SERVER = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (%d, %d))
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=128)
print("ready", flush=True)
while True:
    with listener.accept()[0] as client:
        received = client.recv(4)
        client.sendall(received)
        if received == b"stop":
            break
""" % (_FEW_DESCRIPTORS, _FEW_DESCRIPTORS)


def _await_end(client):
    client.settimeout(harness.WAIT_S)
    try:
        need(client.recv(1) == b"", "a refused client gets bytes")
    except ConnectionResetError:
        pass


@cases.case("half_spoken.counted")
def counted(stage):
    """Each client that was dropped is in the statistics, by its reason."""
    port, path = harness.free_port(), stage.scratch("stats.json")
    server = stage.start("server", "python3", "-c", _LIMITED_SERVER, port,
                         options=[*_OURS, "--stats", path])
    server.expect("^ready$")
    _real_clients(stage, port, "before")
    address = ("127.0.0.1", port)
    for bytes_, ends in ((b"", True), (b"GET / HTTP/1.0", False), (_KEY[:9], True), (_KEY, True)):
        with socket.create_connection(address) as client:
            client.sendall(bytes_)
            if ends:
                client.shutdown(socket.SHUT_WR)
            _await_end(client)
    silent = [socket.create_connection(address) for _ in range(_SILENT)]
    for client in silent:
        _await_end(client)
        client.close()
    stop = stage.start("stop", "python3", "-c", _CLIENT.replace("ping", "stop").replace("5", "1"),
                       port, options=_OURS)
    stop.finish()
    server.finish()
    found = harness.json_of(path)["refusals"]
    need(found["closed"] == 1, f"one client has closed before its first byte: {found}")
    need(found["malformed"] == 3, f"three clients have sent something else: {found}")
    need(found["evicted"] > 0, f"silent clients have made room for others: {found}")
    need(found["evicted"] + found["timed_out"] == _SILENT, f"{_SILENT} were silent: {found}")
