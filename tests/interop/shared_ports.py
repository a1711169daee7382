"""One number as a TCP port and as a port of rdma_cm, by a program of ours and by tgt, an iSCSI
target that has 3260 for both iSCSI and iSER."""

import socket

import cases
import harness
from harness import need

_HOST = "127.0.0.1"


def _greeted(port, line):
    """A TCP client. With a line it speaks first, which may begin as an MPA request does not."""
    with socket.create_connection((_HOST, port), timeout=harness.WAIT_S) as client:
        client.settimeout(harness.WAIT_S)
        with client.makefile("rb") as answers:
            if line is not None:
                client.sendall(line)
            need(answers.readline() == b"welcome\n", "the TCP client got no greeting")
            if line is None:  # only now: it waited for the server
                line = b"at last\n"
                client.sendall(line)
            need(answers.readline() == line, "the TCP client got another line")


def _asked(stage, port, number):
    client = stage.start(f"client {number}", "rdma_client", "-s", _HOST, "-p", port)
    client.finish()
    need("end 0" in client.output, "the RDMA client did not end well")


def _shared(first, how):
    def run(stage):
        """Clients of both kinds in turn; each reaches the part of the program that it means."""
        port = harness.free_port()
        server = stage.start("server", harness.companion("shared_port"), port, first, how, 5, 3)
        server.expect("both listen")
        _asked(stage, port, 1)
        _greeted(port, b"hello\n")
        _greeted(port, b"MPQ is no request\n")
        _asked(stage, port, 2)
        _greeted(port, None)
        _greeted(port, b"MP\n")
        _asked(stage, port, 3)
        _greeted(port, b"good bye\n")
        server.finish()
        need(server.output.count("a TCP client was served") == 5, "TCP clients are missing")
        need(server.output.count("an RDMA client was served") == 3, "RDMA clients are missing")
    return run


for _first in ("tcp", "rdma"):
    for _how in ("events", "thread"):
        cases.add(f"shared_port.{_first}_first_{_how}", _shared(_first, _how))


def _closed(first):
    def run(stage):
        """The TCP socket is closed, and rdma_cm is reached as before."""
        port = harness.free_port()
        server = stage.start("server", harness.companion("shared_port"), port, first, "closed", 1,
                             3)
        server.expect("both listen")
        _asked(stage, port, 1)
        _greeted(port, b"hello\n")
        server.expect("^closed$")
        _asked(stage, port, 2)
        _asked(stage, port, 3)
        server.finish()
        need(server.output.count("an RDMA client was served") == 3, "RDMA clients are missing")
    return run


for _first in ("tcp", "rdma"):
    cases.add(f"shared_port.{_first}_first_closed", _closed(_first))


@cases.case("shared_port.accepted_by_a_child")
def accepted_by_a_child(stage):
    """The child of a program that listens by rdma_cm serves TCP clients as it would without."""
    port = harness.free_port()
    server = stage.start("server", harness.companion("shared_port"), port, "rdma", "child", 3, 0)
    server.expect("both listen")
    for line in (b"hello\n", None, b"MPA is what I speak\n"):
        _greeted(port, line)
    server.finish()
    need(server.output.count("a TCP client was served") == 3, "TCP clients are missing")


@cases.case("shared_port.of_another_program")
def another_program(stage):
    """Another program has the port: the message names what separates them."""
    with socket.create_server((_HOST, 0)) as listener:
        port = listener.getsockname()[1]
        server = stage.start("server", "rdma_server", "-s", _HOST, "-p", port)
        need(server.finish(status=None) != 0, "the port was taken")
        server.expect("another socket has TCP port .*WEFT_PORT_OFFSET=n, on both sides")
