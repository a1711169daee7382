"""Unmodified programs on Weft, with the same programs on the kernel's siw as their peer.

A case's name ends with the direction: `to_siw` has its server on siw, `from_siw` its client.
"""

import re

import harness
import perftest
import rdmacm_utils
import registry
from guest import GUEST, HOST, Guest
from harness import need

_IWARP = ("--personality", "iwarp")  # what siw is: perftest counts credits on such a device only
_LIMIT_S = 60
_DIRECTIONS = ("to_siw", "from_siw")
_ITERATIONS = 20


class Pair:
    """Starts a server on one side and its client on the other."""

    def __init__(self, stage, to_siw):
        self._stage, self.to_siw = stage, to_siw
        self.version = 0  # the index in GUEST and HOST: 0 is IPv4, 1 is IPv6
        self.guest = None
        self.environment = {}  # of Weft's side

    @property
    def address(self):
        return (GUEST if self.to_siw else HOST)[self.version]

    def server(self, port, program, *words):
        if self.to_siw:
            side = self.guest.start("server on siw", program, *words)
            self.guest.await_listening(port)
        else:
            side = self._weft("server on Weft", program, words)
            side.await_listening(port)
        return side

    def client(self, program, *words):
        if self.to_siw:
            return self._weft("client on Weft", program, words)
        return self.guest.start("client on siw", program, *words)

    def _weft(self, name, program, words):
        return self._stage.start(name, program, *words, options=_IWARP,
                                 place=self.guest.place, env=self.environment)


def add(name, converse, *, timeout_s=300, directions=_DIRECTIONS):
    """Registers `converse(stage, pair)` for each direction, each with a guest of its own."""
    for direction in directions:

        def run(stage, direction=direction):
            pair = Pair(stage, direction == "to_siw")
            with Guest(stage) as pair.guest:
                converse(stage, pair)
                pair.guest.need_healthy()

        registry.add(f"{name}.{direction}", run, timeout_s=timeout_s)


def both_ways(name):
    """The same as a decorator."""

    def register(converse):
        add(name, converse)
        return converse

    return register


def rping(pair, *options, count=20):
    """The data is verified on both sides, and each must show each ping."""
    port = harness.free_port()
    both = ["-a", pair.address, "-p", port, "-C", count, "-v", "-V", *options]
    server = pair.server(port, "rping", "-s", *both)
    client = pair.client("rping", "-c", *both)
    rdmacm_utils.finish_rping(client, _LIMIT_S)
    rdmacm_utils.finish_rping(server, _LIMIT_S)
    rdmacm_utils.need_pings(client, "ping data:", count)
    rdmacm_utils.need_pings(server, "server ping data:", count)


def add_rping(name, *options, version=0, environment=None):
    def converse(stage, pair):
        pair.version, pair.environment = version, environment or {}
        for option in options or ((),):
            rping(pair, *option)

    add(f"rping.{name}", converse)


add_rping("64")
add_rping("sizes", *(("-S", size) for size in (24, 100, 1448, 4096, 20000, 65000)))
add_rping("ipv6", version=1)
add_rping("without_crc", environment={"WEFT_CRC": "0"})


@both_ways("rping.lossy_link")
def rping_lossy_link(stage, pair):
    """Each hundredth packet of siw's, data or acknowledgement, is lost on average."""
    pair.guest.run("tc qdisc add dev eth0 root netem loss 1%")
    rping(pair, "-S", 20000, count=50)
    statistics = pair.guest.run("tc -s qdisc show dev eth0")
    need(re.search(r"dropped [1-9]", statistics), f"no packet was lost: {statistics}")


@both_ways("rping.siw_killed")
def siw_killed(stage, pair):
    """The program on siw is killed while the pings run. The one on Weft ends by itself, and a new
    pair connects."""
    port, many = harness.free_port(), 1000000
    both = ["-a", pair.address, "-p", port, "-C", many, "-v", "-V"]
    server = pair.server(port, "rping", "-s", *both)
    client = pair.client("rping", "-c", *both)
    server.expect("^server ping data:")
    client.expect("^ping data:")
    victim, survivor = (server, client) if pair.to_siw else (client, server)
    pair.guest.kill(victim)
    victim.finish(_LIMIT_S, status=None)
    survivor.finish(_LIMIT_S, status=None)
    rping(pair)


@both_ways("rdma_server.one_message")
def rdma_server(stage, pair):
    port = harness.free_port()
    server = pair.server(port, "rdma_server", "-p", port)
    client = pair.client("rdma_client", "-s", pair.address, "-p", port)
    for side in (client, server):
        side.finish(_LIMIT_S)
        need(re.search(r"^rdma_(client|server): end 0$", side.output, re.MULTILINE),
             f"{side.name} does not say 'end 0'")


def ucmatose(stage, pair):
    port = harness.free_port()
    server = pair.server(port, "ucmatose", "-p", port)
    client = pair.client("ucmatose", "-s", pair.address, "-p", port)
    for side in (client, server):
        side.finish(_LIMIT_S)
        need(re.search(r"^return status 0\s*$", side.output, re.MULTILINE),
             f"{side.name} does not end with 'return status 0'")


# The accepting program sends first, and siw as a client asks for no peer-to-peer mode: Weft may not
# send then (RFC 5044 section 7.1), so that this direction cannot pass.
add("ucmatose.ipv4", ucmatose, directions=("to_siw",))


def measure(pair, program, *options, size):
    port = harness.free_port()
    both = ["-F", "-R", "-p", port, "-n", _ITERATIONS, "-s", size, *options]
    server = pair.server(port, program, *both)
    client = pair.client(program, *both, pair.address)
    client.finish(_LIMIT_S)
    server.finish(_LIMIT_S, status=None)  # siw may fail the good-bye after the results
    perftest.need_results(client, [size])


def add_perftest(program, name, *options, sizes, **settings):
    def converse(stage, pair):
        for size in sizes:
            measure(pair, program, *options, size=size)

    add(f"{program}.{name}", converse, **settings)


_BANDWIDTH_SIZES = (1, 64, 4096, 65536, 1 << 20)
add_perftest("ib_send_bw", "sizes", sizes=_BANDWIDTH_SIZES, directions=("to_siw",))
add_perftest("ib_write_bw", "sizes", sizes=_BANDWIDTH_SIZES, directions=("to_siw",))
add_perftest("ib_read_bw", "sizes", sizes=_BANDWIDTH_SIZES, directions=("from_siw",))
add_perftest("ib_send_lat", "sizes", sizes=(1, 64, 4096, 65536), directions=("to_siw",))
