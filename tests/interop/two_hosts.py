"""Programs on two hosts: network namespaces joined by a pair of veth devices.

Here the GIDs of an address vector name another machine's address, and neither end reaches the
other by loopback.
"""

import cases
import harness
import libfabric
import perftest
import pingpong
import rdmacm_utils
from veth import VethPair

_FEW = 20


def on_two_hosts(converse, **network):
    """A test that runs `converse(stage, places)` with each side on a host of its own. network: see
    VethPair."""

    def run(stage):
        with VethPair(**network) as link:
            try:
                converse(stage, link.places)
            finally:
                for side in stage.sides:  # the sides go before their network does
                    if side.process.poll() is None:
                        side.signal(9)

    return run


def add_pingpong(name, *options, program="ibv_rc_pingpong", **settings):
    def converse(stage, places):
        pingpong.pingpong(stage, *options, program=program, places=places,
                          address=places[0].ipv4, **settings)

    cases.add(f"{program}.two_hosts_{name}", on_two_hosts(converse))


def add_perftest(name, program, *options, sizes, rdma_cm=False, iterations=_FEW):
    def converse(stage, places):
        perftest.perftest(stage, program, places[0].ipv4, *options, sizes=sizes, places=places,
                          iterations=iterations, rdma_cm=rdma_cm)

    cases.add(f"{program}.two_hosts_{name}", on_two_hosts(converse))


def add_rping(name, version, *weft_options):
    def converse(stage, places):
        rdmacm_utils.rping(stage, getattr(places[0], version), places=places, count=200,
                           weft_options=weft_options)

    cases.add(f"rping.two_hosts_{name}", on_two_hosts(converse))


add_pingpong("polling")
add_pingpong("events", "-e")
add_pingpong("contents", "-c", "-s", 65536, count=200)
add_pingpong("large", "-c", "-s", 4 << 20, count=20)
add_pingpong("polling", program="ibv_srq_pingpong")
for _program in perftest.BANDWIDTH:
    add_perftest("raw", _program, sizes=[65536])
    add_perftest("raw_bidirectional", _program, "-b", "-q", 8, sizes=[65536])
for _program in perftest.LATENCY:
    add_perftest("raw", _program, sizes=[65536])
for _program in perftest.ATOMIC:
    add_perftest("raw", _program, "-A", "FETCH_AND_ADD", sizes=[8])
add_perftest("rdma_cm", "ib_write_bw", sizes=[65536], rdma_cm=True)

_IWARP, _ROCE = ("--personality", "iwarp"), ("--personality", "roce")
add_rping("roce", "ipv4", _ROCE, _ROCE)
add_rping("roce_ipv6", "ipv6", _ROCE, _ROCE)
add_rping("iwarp", "ipv4", _IWARP, _IWARP)
add_rping("iwarp_server_roce_client", "ipv4", _IWARP, _ROCE)
add_rping("roce_server_iwarp_client", "ipv4", _ROCE, _IWARP)


def add_libfabric(name, provider, kind, look):
    def converse(stage, places):
        libfabric.converse(stage, provider, kind, look, places, places[0].ipv4)

    cases.add(f"fi_pingpong.two_hosts_{name}_{look}", on_two_hosts(converse))


for _look in ("roce", "iwarp"):
    add_libfabric("msg", "verbs", "msg", _look)
    add_libfabric("rxm", "verbs;ofi_rxm", "rdm", _look)
