"""What a user gets wrong, and what a stranger sends: a clear word and no hang."""

import re
import signal
import socket
import threading

import cases
import harness
import rdmacm_utils
from harness import need

_HOST = "127.0.0.1"


def need_error(side, *patterns, within_s=harness.WAIT_S):
    """It ends with a failure, and says why in words that match each pattern."""
    code = side.finish(within_s, status=None)
    need(code != 0, f"{side.name} ended with status 0")
    need(code > 0, f"{side.name} was ended by {harness.ending(code)}")
    for pattern in patterns:
        need(re.search(pattern, side.output), f"{side.name} does not say /{pattern}/")


@cases.case("bad_input.unknown_option_of_weft")
def unknown_option(stage):
    side = stage.plain("weft", harness.weft(), "run", "--no-such-option", "--", "true")
    need_error(side, "--no-such-option")


@cases.case("bad_input.unknown_command_of_weft")
def unknown_command(stage):
    need_error(stage.plain("weft", harness.weft(), "no-such-command"), "no-such-command")


@cases.case("bad_input.unknown_program")
def unknown_program(stage):
    side = stage.plain("weft", harness.weft(), "run", "--", "no-such-program-anywhere")
    need_error(side, "no-such-program-anywhere")


@cases.case("bad_input.unknown_option_of_the_program")
def unknown_option_of_program(stage):
    """The program's own affair: weft passes it on and hands back the status."""
    need_error(stage.start("rping", "rping", "--no-such-option"), r"rping -s \[")


@cases.case("bad_input.wrong_environment")
def wrong_environment(stage):
    side = stage.start("rping", "rping", "-s", "-a", _HOST, env={"WEFT_PROGRESS": "sometimes"})
    need_error(side, "WEFT_PROGRESS", "sometimes")


@cases.case("bad_input.busy_port")
def busy_port(stage):
    port = harness.free_port()
    first = stage.start("first server", "rping", "-s", "-a", _HOST, "-p", port, "-C", 10)
    first.await_listening(port)
    second = stage.start("second server", "rping", "-s", "-a", _HOST, "-p", port, "-C", 10)
    need_error(second, "(?i)address already in use")
    # The first one is none the worse for it.
    stage.start("client", "rping", "-c", "-a", _HOST, "-p", port, "-C", 10).finish()
    first.finish()


@cases.case("bad_input.port_of_another_program")
def port_of_another_program(stage):
    """iWARP has no port space of its own: a TCP server's port is taken."""
    with socket.create_server((_HOST, 0)) as server:
        port = server.getsockname()[1]
        side = stage.start("rping", "rping", "-s", "-a", _HOST, "-p", port)
        need_error(side, "(?i)address already in use", rf"\b{port}\b",
                   "WEFT_PORT_OFFSET=n, on both sides")


@cases.case("bad_input.address_of_another_machine")
def foreign_address(stage):
    side = stage.start("rping", "rping", "-s", "-a", "192.0.2.7", "-p", harness.free_port())
    need_error(side, "(?i)cannot assign requested address|no such device")


@cases.case("bad_input.nobody_listens")
def nobody_listens(stage):
    side = stage.start("rping", "rping", "-c", "-a", _HOST, "-p", harness.free_port(), "-C", 1)
    need_error(side, "RDMA_CM_EVENT_REJECTED|RDMA_CM_EVENT_UNREACHABLE|CONNECT_ERROR|connect")


@cases.case("bad_input.unwritable_capture")
def unwritable_capture(stage):
    side = stage.start("rping", "rping", "-s", "-a", _HOST, "-p", harness.free_port(),
                       options=["--capture", "/proc/nowhere/capture.pcapng"])
    need_error(side, "/proc/nowhere/capture.pcapng")


class Stranger:
    """A TCP server that speaks no MPA: it answers the first bytes with `answer`, or not at all."""

    def __init__(self, answer, close):
        self._server = socket.create_server((_HOST, 0))
        self.port = self._server.getsockname()[1]
        self._answer, self._close = answer, close
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        kept = []
        while True:
            connection, _ = self._server.accept()
            connection.recv(4096)
            try:
                connection.sendall(self._answer)
            except OSError:
                pass
            if self._close:
                connection.close()
            else:
                kept.append(connection)


def _strange_server(answer, close, personality="roce"):
    def run(stage):
        stranger = Stranger(answer, close)
        side = stage.start("rping", "rping", "-c", "-a", _HOST, "-p", stranger.port, "-C", 1,
                           options=["--personality", personality])
        need_error(side, rf"{stranger.port} accepts TCP .* WEFT_PORT_OFFSET=n, on both sides")

    return run


cases.add("bad_input.server_speaks_http",
          _strange_server(b"HTTP/1.0 400 Bad Request\r\nServer: none\r\n\r\n", False))
cases.add("bad_input.server_closes", _strange_server(b"", True))
cases.add("bad_input.server_is_silent", _strange_server(b"", False, "iwarp"), timeout_s=90)
cases.add("bad_input.server_answers_half",
          _strange_server(b"MPA ID Rep Frame\x40", True))


@cases.case("bad_input.server_is_silent_for_long", timeout_s=90)
def silent_for_long(stage):
    """A client that waits longer, as on RoCE, informs the user long before it gives up."""
    stranger = Stranger(b"", False)
    side = stage.start("rping", "rping", "-c", "-a", _HOST, "-p", stranger.port, "-C", 1)
    side.expect(rf"{stranger.port} has not answered .* WEFT_PORT_OFFSET=n, on both sides")
    need(side.process.poll() is None, "the client has given up")
    side.signal(signal.SIGKILL)
    side.finish(status=None)


@cases.case("bad_input.client_sends_garbage")
def strange_client(stage):
    """A server that meets strangers of all kinds serves the next client."""
    port = harness.free_port()
    server = stage.start("server", "rping", "-s", "-P", "-a", _HOST, "-p", port, "-v", "-V")
    server.await_listening(port)
    kept = []
    for greeting in (b"GET / HTTP/1.0\r\n\r\n", b"\0" * 4096, b"MPA ID Req Frame", b"",
                     b"MPA ID Req Frame\x40\x01\xff\xff" + b"x" * 100,
                     b"MPA ID Rep Frame\x40\x01\x00\x00", b"MPA ID Req Frame\x40\x09\x00\x00"):
        for close in (True, False):
            connection = socket.create_connection((_HOST, port))
            connection.sendall(greeting)
            if close:
                connection.close()
            else:
                kept.append(connection)
    client = stage.start("client", "rping", "-c", "-a", _HOST, "-p", port, "-C", 50, "-v", "-V")
    client.finish()
    rdmacm_utils.need_pings(client, "ping data:", 50)
    need(server.process.poll() is None, "the server ended")
    for connection in kept:
        connection.close()


@cases.case("bad_input.garbage_after_the_handshake")
def garbage_later(stage):
    """A peer that greets well and then sends noise: its connection ends, and only that one."""
    port = harness.free_port()
    server = stage.start("server", "rping", "-s", "-P", "-a", _HOST, "-p", port)
    server.await_listening(port)
    with socket.create_connection((_HOST, port)) as connection:
        connection.settimeout(harness.WAIT_S)
        connection.sendall(b"MPA ID Req Frame\x40\x01\x00\x00")
        reply = connection.recv(20)
        need(reply.startswith(b"MPA ID Rep Frame"), f"the server answers {reply!r}")
        connection.sendall(b"\x00\x20" + b"\xa5" * 4094)
        try:
            while connection.recv(4096):
                pass
        except ConnectionResetError:
            pass
    stage.start("client", "rping", "-c", "-a", _HOST, "-p", port, "-C", 50, "-V").finish()
    need(server.process.poll() is None, "the server ended")
