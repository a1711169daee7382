"""Programs over a link that loses 1 % of the packets, lets 5 % overtake and takes 2 ms each way.

Few and large iterations: each round trip takes 4 ms, and each loss halves what TCP dares to send.
"""

import time

import cases
import harness
import perftest
import rdmacm_utils
from harness import need
from lossy_link import LossyLink, Weather

_WITHIN_S = 110


def over_lossy_link(converse):
    """A test that runs `converse(stage, places)` over such a link."""

    def run(stage):
        with LossyLink(harness.seed()) as link:
            try:
                converse(stage, link.places)
            finally:
                # The sides go before their network does.
                for side in stage.sides:
                    side.signal(9) if side.process.poll() is None else None
                counts = link.counts()
                print(", ".join(f"{count} packets {what}" for what, count in counts.items()))
        need(counts["forwarded"] > 100, "the link carried next to nothing")

    return run


def add_perftest(program, size, iterations, *options, long=False, version="ipv4", name=""):
    def converse(stage, places):
        server_address = getattr(places[0], version)
        perftest.perftest(stage, program, server_address, *options, sizes=[size],
                          iterations=iterations, places=places, within_s=_WITHIN_S)

    name = name or f"lossy_link_{size // 1024}k"
    cases.add(f"{program}.{name}", over_lossy_link(converse), long=long)


def add_rping(name, version, size, count):
    def converse(stage, places):
        rdmacm_utils.rping(stage, getattr(places[0], version), "-S", size, count=count,
                           places=places, within_s=_WITHIN_S)

    cases.add(f"rping.{name}", over_lossy_link(converse))


add_rping("lossy_link_ipv4", "ipv4", 4096, 50)
add_rping("lossy_link_ipv6", "ipv6", 60000, 20)
for _program in perftest.BANDWIDTH:
    add_perftest(_program, 65536, 100)
    add_perftest(_program, 1 << 20, 20, "-b", name="lossy_link_bidirectional")
    add_perftest(_program, 1 << 20, 200, "-q", 4, long=True, name="lossy_link_four_queue_pairs")
    add_perftest(_program, 1 << 20, 100, long=True, version="ipv6", name="lossy_link_ipv6")
for _program in perftest.LATENCY:
    add_perftest(_program, 65536, 50)
    add_perftest(_program, 1 << 20, 50, long=True, version="ipv6", name="lossy_link_ipv6")


def early_client(stage):
    """A server may open its port late because it waits for packets that were lost, as perftest's
    does for its second port. TCP repeats them after up to 1.6 s, and the client waits as long."""
    refused_s, count = 1.5, 10
    with LossyLink(harness.seed(), Weather(loss=0)) as link:
        both = ["-a", link.places[0].ipv4, "-p", harness.free_port(), "-C", count, "-v", "-V"]
        client = stage.start("client", "rping", "-c", *both, place=link.places[1])
        while link.counts()["forwarded"] < 2:
            need(client.process.poll() is None, "the client ended before it sent anything")
            time.sleep(0.005)
        time.sleep(refused_s)  # the client is refused all this time
        server = stage.start("server", "rping", "-s", *both, place=link.places[0])
        for side in (client, server):
            rdmacm_utils.finish_rping(side, _WITHIN_S)
        rdmacm_utils.need_pings(client, "ping data:", count)


cases.add("rping.early_client", early_client)
