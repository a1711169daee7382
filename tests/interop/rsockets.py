"""rstream, riostream, udpong and rcopy, from rdmacm-utils, and programs of ours that read
rsocket(7) to the letter: sockets over RDMA, on the drop-in's."""

import hashlib
import os
import random

import cases
import datagrams
import harness
from harness import need

_RESULT = r"^\S+ +\S+ +\d+k? +\d+ +\S+ +[\d.]+s"


def pair(stage, program, *options, address="127.0.0.1", family="ip", within_s=harness.WAIT_S):
    """Server and client of rstream or riostream; both must reach the end and show a result."""
    harness.need_address(address)
    port = harness.free_port()
    both = ["-f", family, "-p", port, *options]
    server = stage.start("server", program, "-b", address, *both)
    server.await_listening(port)
    client = stage.start("client", program, "-s", address, *both)
    client.finish(within_s)
    server.finish(within_s)
    for side in (server, client):
        harness.need_no_trouble(side)
        side.expect(_RESULT)
    return server, client


def _case(program, *options, **more):
    return lambda stage: pair(stage, program, *options, **more)


_MODES = {"blocking": "b", "nonblocking": "n", "poll": "a"}
for _name, _mode in _MODES.items():
    # -T v: the program checks every byte that it gets.
    cases.add(f"rstream.{_name}", _case("rstream", "-T", _mode, "-T", "v", "-C", 200, "-S", 5000),
              sanitized=_name == "blocking")
    cases.add(f"riostream.{_name}",
              _case("riostream", "-T", _mode, "-T", "v", "-C", 50, "-S", 5000))

cases.add("rstream.ipv6", _case("rstream", "-T", "v", "-C", 200, "-S", 5000, address="::1",
                                family="ipv6"))
cases.add("rstream.large", _case("rstream", "-T", "v", "-C", 10, "-S", 4194304))
cases.add("rstream.small_buffers", _case("rstream", "-T", "v", "-C", 20, "-S", 100000, "-B", 1000))
cases.add("rstream.keepalive", _case("rstream", "-k", 1, "-C", 200, "-S", 5000))
cases.add("rstream.fork", _case("rstream", "-T", "f", "-T", "b", "-C", 100, "-S", 1000))
# Every size from 64 bytes to 1 MiB, for latency and for bandwidth.
cases.add("rstream.all", _case("rstream", within_s=300), timeout_s=600, long=True)


# Its programs spin on memory for what the other writes there: on two cores each exchange may take
# the scheduler's time, so fewer than by default, of the same sizes.
@cases.case("riostream.all", timeout_s=900, long=True)
def riostream_all(stage):
    for power in range(6, 21):
        for size in {1 << power, min(3 << (power - 1), 1 << 20)}:
            pair(stage, "riostream", "-S", size, "-I", 20, "-C", 50)


@cases.case("rcopy.file")
def rcopy_file(stage):
    port = harness.free_port()
    source, copy = stage.scratch("source"), stage.scratch("copy")
    with open(source, "wb") as file:
        file.write(random.Random(harness.seed()).randbytes(3_000_001))
    server = stage.start("server", "rcopy", "-p", port)
    server.await_listening(port)
    stage.start("client", "rcopy", source, f"127.0.0.1:{copy}", "-p", port).finish()
    digests = {hashlib.sha256(open(path, "rb").read()).hexdigest() for path in (source, copy)}
    need(len(digests) == 1, "the copy differs")
    need(os.path.getsize(copy) == 3_000_001, "the copy has another size")


def _udpong(size, *options, count=200, address="127.0.0.1", env=None):
    """The server serves for ever; the client must reach its end and show a result."""

    def run(stage):
        harness.need_address(address)
        port = harness.free_port()
        both = ["-p", port, "-S", size, *options]
        server = stage.start("server", "udpong", "-b", address, *both, env=env)
        datagrams.await_udp_port(server, port)
        client = stage.start("client", "udpong", "-s", address, "-C", count, *both, env=env)
        client.finish()
        client.expect(rf"^custom +{size} +\S+ +\S+ +[\d.]+s")
        for side in (server, client):
            harness.need_no_trouble(side)

    return run


for _name, _mode in _MODES.items():
    cases.add(f"udpong.{_name}", _udpong(500, "-T", _mode))
cases.add("udpong.echo", _udpong(500, "-T", "e"))
cases.add("udpong.small", _udpong(64))
cases.add("udpong.full", _udpong(1000))
cases.add("udpong.ipv6", _udpong(300, address="::1", env={"WEFT_GIDS": "all"}))
cases.add("udpong.small_buffers", _udpong(300, "-B", 4000, count=50))


@cases.case("udpong.too_long")
def udpong_too_long(stage):
    """A datagram is one packet of at most the MTU, and says so."""
    port = harness.free_port()
    server = stage.start("server", "udpong", "-b", "127.0.0.1", "-p", port, "-S", 4096)
    datagrams.await_udp_port(server, port)
    client = stage.start("client", "udpong", "-s", "127.0.0.1", "-p", port, "-S", 4096, "-C", 10)
    client.expect("Message too long")


@cases.case("rsocket.datagrams", sanitized=True)
def rsocket_datagrams(stage):
    side = stage.start("program", harness.companion("datagram_manual"))
    side.finish()
    need("all as udp(7) has it" in side.output, "the program did not reach its end")


@cases.case("rsocket.datagram_peers")
def rsocket_datagram_peers(stage):
    """Eight sockets of one process talk with one socket of another."""
    server = stage.start("server", harness.companion("datagram_manual"), "echo")
    port = server.expect(r"^(\d+)$").group(1)
    client = stage.start("client", harness.companion("datagram_manual"), "ask", port)
    client.finish()
    server.finish()
    need("all answers came" in client.output, "an answer is missing")


@cases.case("rsocket.manual", sanitized=True)
def rsocket_manual(stage):
    side = stage.start("program", harness.companion("rsocket_manual"))
    side.finish()
    need("all as rsocket(7) has it" in side.output, "the program did not reach its end")


@cases.case("rsocket.waits")
def rsocket_waits(stage):
    """Calls that wait end as those of TCP sockets: by signals, rshutdown, rclose and the peer."""
    side = stage.start("program", harness.companion("rsocket_waits"))
    side.finish()
    need("all waits end" in side.output, "the program did not reach its end")


@cases.case("rsocket.forks")
def rsocket_forks(stage):
    side = stage.start("program", harness.companion("rsocket_forks"))
    side.finish()
    need("all children have ended" in side.output, "the program did not reach its end")
