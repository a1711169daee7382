"""rping, ucmatose, rdma_server and rdma_client, from rdmacm-utils."""

import re
import subprocess

import cases
import harness
from harness import need

LOOPBACKS = {"ipv4": "127.0.0.1", "ipv6": "::1"}
_PINGS = 1000


def rping(stage, address, *options, server_options=None, places=(None, None), count=_PINGS,
          weft_options=((), ()), within_s=harness.WAIT_S):
    """Server and client with verification of what comes back; both must reach the end."""
    port = harness.free_port()
    both = ["-a", address, "-p", port, "-C", count, "-v", "-V", *options]
    server = stage.start("server", "rping", "-s", *both, options=weft_options[0], place=places[0])
    server.await_listening(port)
    client = stage.start("client", "rping", "-c", *both, options=weft_options[1], place=places[1])
    finish_rping(client, within_s)
    finish_rping(server, within_s)
    need_pings(client, "ping data:", count)
    need_pings(server, "server ping data:", count)
    return server, client


# Before release 49 rping's main thread closes its event channel while another thread may be about
# to read from it, whatever the device. That thread then ends the program with -1, after all is
# done. Its complaint is not buffered, and comes before what is left in the buffer of the output.
_CLOSED_EARLY = "rdma_get_cm_event: Bad file descriptor"


def finish_rping(side, within_s=harness.WAIT_S):
    status = side.finish(within_s, status=None)
    closed_early = status == 255 and _CLOSED_EARLY in side.output
    need(status == 0 or closed_early, f"{side.name} ended with {harness.ending(status)}")
    if closed_early:
        side.lines = side.output.replace(_CLOSED_EARLY + "\n", "").split("\n")


def need_pings(side, prefix, count):
    """Each ping was shown, which rping does after it has compared the data."""
    shown = sum(line.startswith(prefix) for line in side.lines)
    need(shown == count, f"{side.name} shows {shown} pings, expected {count}")
    # rping's own word for a connection that ended, which each one does.
    harness.need_no_trouble(side, allowed=r"DISCONNECT EVENT")


def _rping_case(address):
    def run(stage):
        harness.need_address(address)
        rping(stage, address)

    return run


for _name, _address in LOOPBACKS.items():
    cases.add(f"rping.{_name}", _rping_case(_address), sanitized=_name == "ipv4")


@cases.case("rping.large")
def rping_large(stage):
    rping(stage, "127.0.0.1", "-S", 65000, count=200)


@cases.case("rping.own_queue_pair")
def rping_own_queue_pair(stage):
    """-q: the program makes and moves its queue pair itself, instead of rdma_create_qp."""
    rping(stage, "127.0.0.1", "-q", count=200)


_IWARP, _ROCE = ("--personality", "iwarp"), ("--personality", "roce")


def _personality_case(server, client, *options):
    def run(stage):
        rping(stage, "127.0.0.1", *options, count=200, weft_options=(server, client))

    return run


cases.add("rping.iwarp", _personality_case(_IWARP, _IWARP))
cases.add("rping.iwarp_own_queue_pair", _personality_case(_IWARP, _IWARP, "-q"))
cases.add("rping.iwarp_server_roce_client", _personality_case(_IWARP, _ROCE))
cases.add("rping.roce_server_iwarp_client", _personality_case(_ROCE, _IWARP))


@cases.case("rping.persistent_server")
def rping_persistent_server(stage):
    """-P: one server process, one client after the other."""
    port = harness.free_port()
    server = stage.start("server", "rping", "-s", "-P", "-a", "127.0.0.1", "-p", port, "-v", "-V")
    server.await_listening(port)
    for turn in range(5):
        client = stage.start(f"client {turn}", "rping", "-c", "-a", "127.0.0.1", "-p", port, "-C",
                             100, "-v", "-V")
        finish_rping(client)
        need_pings(client, "ping data:", 100)
    need(server.process.poll() is None, "the server ended")


def _ucmatose_case(address, *options, weft_options=()):
    def run(stage):
        harness.need_address(address)
        port = harness.free_port()
        server = stage.start("server", "ucmatose", "-b", address, "-p", port, *options,
                             options=weft_options)
        server.await_listening(port)
        client = stage.start("client", "ucmatose", "-s", address, "-b", address, "-p", port,
                             *options, options=weft_options)
        for side in (client, server):
            side.finish()
            need(re.search(r"^test complete\s*$", side.output, re.MULTILINE),
                 f"{side.name} does not say 'test complete'")
            need(re.search(r"^return status 0\s*$", side.output, re.MULTILINE),
                 f"{side.name} does not end with 'return status 0'")

    return run


for _name, _address in LOOPBACKS.items():
    cases.add(f"ucmatose.{_name}", _ucmatose_case(_address))
cases.add("ucmatose.connections", _ucmatose_case("127.0.0.1", "-c", 10, "-C", 100, "-S", 4096))
cases.add("ucmatose.iwarp", _ucmatose_case("127.0.0.1", weft_options=_IWARP))
cases.add("ucmatose.migrate", _ucmatose_case("127.0.0.1", "-m"))


def _rdma_server_case(address):
    def run(stage):
        harness.need_address(address)
        port = harness.free_port()
        server = stage.start("server", "rdma_server", "-s", address, "-p", port)
        server.await_listening(port)
        client = stage.start("client", "rdma_client", "-s", address, "-p", port)
        client.finish()
        server.finish()
        need("rdma_client: end 0" in client.output, "the client does not end with 0")
        need("rdma_server: end 0" in server.output, "the server does not end with 0")

    return run


for _name, _address in LOOPBACKS.items():
    cases.add(f"rdma_server.{_name}", _rdma_server_case(_address), sanitized=_name == "ipv4")


_STEPS = ("create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect",
          "destroy")


@cases.case("cmtime.connections")
def cmtime(stage):
    """A table of times; its server serves until it is told to stop."""
    port = harness.free_port()
    both = ["cmtime", "-c", 200, "-p", port]
    # From rdma-core 59 on the port is that of a meeting place, and both sides have an address.
    usage = subprocess.run(["cmtime", "-h"], check=False, text=True, stdout=subprocess.PIPE)
    if "-C controller" in usage.stdout:
        both += ["-b", "127.0.0.1", "-C", "127.0.0.1"]
        server = stage.start("server", *both, "-L")
        client_options = []
    else:
        server = stage.start("server", *both, "-b", "127.0.0.1")
        client_options = ["-s", "127.0.0.1"]
    server.await_listening(port)
    client = stage.start("client", *both, *client_options)
    client.finish()
    for step in _STEPS:
        need(re.search(rf"^ *(?:cm )?{step}(?: id)?\s*:?\s+[\d.]+", client.output, re.MULTILINE),
             f"no times of '{step}'")
    # Newer releases have several parts; the last one connects ids without queue pairs.
    parts = len(re.findall(r"^Connect \(\d+\)", client.output, re.MULTILINE))
    need(client.output.count("full connect") >= parts, "a part has no table of times")
    for side in (client, server):
        harness.need_no_trouble(side)


def _xserver(*options, weft=()):
    def run(stage):
        port = harness.free_port()
        server = stage.start("server", "rdma_xserver", "-p", port, *options,
                             options=weft)
        server.await_listening(port)
        client = stage.start("client", "rdma_xclient", "-s", "127.0.0.1", "-p", port, *options,
                             options=weft)
        for side in (client, server):
            side.finish()
            need(f"rdma_x{side.name}: end 0" in side.output, f"the {side.name} does not end with 0")

    return run


cases.add("rdma_xserver.reliable", _xserver())
# The server names a shared receive queue in its reply; the client sends to it.
cases.add("rdma_xserver.extended_reliable", _xserver("-c", "x"))
cases.add("rdma_xserver.extended_reliable_ib",
          _xserver("-c", "x", weft=("--personality", "ib")))


@cases.case("rdma_xserver.extended_reliable_iwarp_is_refused")
def extended_on_iwarp(stage):
    """As on iWARP adapters. The line on stderr names the personality that has it."""
    server = stage.start("server", "rdma_xserver", "-p", harness.free_port(), "-c", "x",
                         options=("--personality", "iwarp"))
    server.finish(status=None)
    need("rdma_create_ep: Operation not supported" in server.output,
         "the server does not say what is not supported")
    need("--personality roce" in server.output, "no line names the personality")
