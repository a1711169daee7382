"""The layers of the C++ library between two devices: the embedded one here, siw in the guest.

The same examples run on both sides, and compare what arrives. Streams use the iWARP variant of
rstream, writes and sends, because siw has no immediate data.
"""

import os

import registry
from guest import GUEST, HOST, Guest
from harness import Skip, need
from suites import build

_LIMIT_S = 600


def example(name):
    path = build() / "examples" / name
    if not path.exists():
        raise Skip(f"{path} is not built")
    return path


class Sides:
    """Starts programs on the embedded device here and on siw in the guest."""

    def __init__(self, stage, guest, to_siw):
        self._stage, self._guest, self._to_siw = stage, guest, to_siw
        self.address = (GUEST if to_siw else HOST)[0]
        self.environment = {"WEFT_REQUIRE": "embedded"}  # of Weft's side

    def _start(self, on_siw, name, *words):
        if on_siw:
            return self._guest.start(f"{name} on siw", "env WEFT_BACKEND=system",
                                     "WEFT_REQUIRE=system", *words)
        return self._stage.plain(f"{name} on Weft", *words, place=self._guest.place,
                                 env=self.environment)

    def server(self, *words):
        """The started program and the port that it prints."""
        side = self._start(self._to_siw, "server", *words)
        return side, side.expect(r"^port (\d+)$")[1]

    def client(self, *words):
        return self._start(not self._to_siw, "client", *words)


def file_copy(stage, sides):
    """weft::connection: an advertised buffer, writes, and a checksum that the server compares."""
    program = example("file_copy")  # the file as well: both sides see it
    copy = stage.scratch("copy")
    server, port = sides.server(program, "serve", copy if sides.address == HOST[0] else "/tmp/copy")
    client = sides.client(program, sides.address, port, program)
    client.finish(_LIMIT_S)
    server.finish(_LIMIT_S)
    server.expect(rf"^{os.path.getsize(program)} bytes, verified$")


def messages(_, sides):
    """weft::message: one message, compared by its receiver."""
    server, port = sides.server(example("weft-recv"), sides.address, 0)
    client = sides.client(example("weft-send"), sides.address, port)
    client.finish(_LIMIT_S)
    server.finish(_LIMIT_S)
    server.expect("^4096 bytes$")


def streams(_, sides):
    """weft::stream: a megabyte there and back through each of several streams, compared.

    Streams on siw send the length of each Write inline. siw serves an empty Read that had to wait
    from the list of its previous request, and ends the connection if that was inline. So Weft sends
    no empty Reads here."""
    sides.environment["WEFT_ACK"] = "0"
    server, port = sides.server(example("epoll_echo"), "serve")
    client = sides.client(example("epoll_echo"), sides.address, port, 4)
    client.finish(_LIMIT_S)
    client.expect("^4 streams brought everything back$")
    need(server.process.poll() is None, "the server ended")


def add(name, converse):
    for to_siw in (True, False):

        def run(stage, to_siw=to_siw):
            with Guest(stage, shared=(build(),)) as guest:
                converse(stage, Sides(stage, guest, to_siw))
                guest.need_healthy()

        registry.add(f"layers.{name}.{'to' if to_siw else 'from'}_siw", run, timeout_s=1800)


add("connection", file_copy)
add("message", messages)
add("stream", streams)
