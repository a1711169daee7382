"""rstream, riostream and rcopy, from rdmacm-utils, and a program of ours that reads rsocket(7) to
the letter: sockets over RDMA, on the drop-in's."""

import hashlib
import os
import random

import cases
import harness
from harness import need

_RESULT = r"^\S+ +\S+ +\d+k? +1 +\S+ +[\d.]+s"


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
cases.add("riostream.all", _case("riostream", within_s=600), timeout_s=900, long=True)


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


@cases.case("udpong.refused")
def udpong_refused(stage):
    """Datagram rsockets are not there: said as socket(2) would say it."""
    server = stage.start("server", "udpong", "-p", harness.free_port())
    server.finish(status=None)
    need("Socket type not supported" in server.output, "the reason is not said")


@cases.case("rsocket.manual", sanitized=True)
def rsocket_manual(stage):
    side = stage.start("program", harness.companion("rsocket_manual"))
    side.finish()
    need("all as rsocket(7) has it" in side.output, "the program did not reach its end")
