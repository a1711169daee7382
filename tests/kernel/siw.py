"""rping, ucmatose, rdma_server and rdma_client: Weft with the kernel's siw as the peer."""

import re

import harness
import killed
import perftest
from conversations import (RESPONDER_FIRST, endless_rping, measure, rdma_server, rping, ucmatose)
from harness import need
from pairs import LIMIT_S, add, both_ways


def add_rping(name, *options, version=0, environment=None):
    def converse(pair):
        pair.version, pair.environment = version, environment or {}
        for option in options or ((),):
            rping(pair, *option)

    add(f"rping.{name}", converse)


add_rping("sizes", *(("-S", size) for size in (24, 64, 100, 1448, 4096, 20000, 65000)))
add_rping("ipv6", version=1)
add_rping("without_crc", environment={"WEFT_CRC": "0"})


def lose_sent(guest):
    guest.run("tc qdisc add dev eth0 root netem loss 1%")
    return "eth0"


def lose_received(guest):
    """Packets of Weft's are lost, where they arrive."""
    guest.run("modprobe -a ifb sch_ingress cls_matchall act_mirred && ip link set ifb0 up && "
              "tc qdisc add dev eth0 ingress && "
              "tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0"
              " && tc qdisc add dev ifb0 root netem loss 1%")
    return "ifb0"


@both_ways("lossy_link")
def lossy_link(pair):
    """Each hundredth packet is lost on average, data or acknowledgement: first of those that siw
    sends, then of those that it receives as well."""
    for lose in (lose_sent, lose_received):
        device = lose(pair.guest)
        rping(pair, "-S", 20000, count=50)
        measure(pair, "ib_write_bw", size=65536)
        statistics = pair.guest.run(f"tc -s qdisc show dev {device}")
        need(re.search(r"dropped [1-9]", statistics), f"no packet was lost: {statistics}")


# The program on Weft notices at once that its peer is gone.
_SURVIVOR_S = 60


def end_alone(on_weft, moment):
    """The program on Weft ends by itself after its peer was killed, and by no fault of memory."""
    on_weft.finish(_SURVIVOR_S, status=None)
    killed.need_no_crash(on_weft, moment)


@both_ways("rping.siw_killed")
def siw_killed(pair):
    """The program on siw is killed while the pings run. The one on Weft ends by itself, and a new
    pair connects."""
    on_weft, on_siw = endless_rping(pair)
    pair.kill(on_siw)
    end_alone(on_weft, "while it pinged")
    rping(pair)


@both_ways("rping.weft_killed")
def weft_killed(pair):
    """The same with the program on Weft. siw keeps no queue pair of it."""
    on_weft, on_siw = endless_rping(pair)
    pair.kill(on_weft)
    on_siw.finish(LIMIT_S, status=None)
    left = pair.guest.run("rdma resource show qp | grep -c rping || true").strip()
    need(left == "0", f"siw has {left} queue pairs of a connection that ended")
    rping(pair)


def bandwidth_killed(pair, victim):
    """Programs that keep many requests outstanding: the survivor ends, and a new pair connects."""
    for program in ("ib_write_bw", "ib_send_bw", "ib_read_bw"):
        port = harness.free_port()
        both = ["-F", "-R", "-p", port, "-D", 600, "-s", 65536]
        server = pair.server(port, program, *both)
        client = pair.client(program, *both, pair.address)
        pair.guest.await_traffic(1 << 20)  # perftest shows nothing before its end
        on_weft, on_siw = (client, server) if pair.to_siw else (server, client)
        dies, lives = (on_siw, on_weft) if victim == "siw" else (on_weft, on_siw)
        pair.kill(dies)
        if victim == "siw":
            end_alone(lives, f"in {program}")
        else:
            lives.finish(LIMIT_S, status=None)
    measure(pair, "ib_write_bw", size=65536)


add("bandwidth.siw_killed", lambda pair: bandwidth_killed(pair, "siw"))
add("bandwidth.weft_killed", lambda pair: bandwidth_killed(pair, "weft"))
@both_ways("programs.roce")
def in_roce(pair):
    """By rdma_cm it does not matter how Weft's device looks. Of perftest's programs ib_send_bw is
    an exception: it counts credits on an iWARP device only, and both sides must."""
    pair.options = ("--personality", "roce")
    rping(pair, "-S", 65000)
    rdma_server(pair)
    for program in ("ib_write_bw", "ib_read_bw", "ib_send_lat", "ib_read_lat"):
        measure(pair, program, size=65536)


@both_ways("programs.ipv6")
def over_ipv6(pair):
    """rdma_server and rdma_client, and ucmatose; rping has a case of its own."""
    pair.version, pair.environment = 1, RESPONDER_FIRST
    rdma_server(pair)
    ucmatose(pair)


@both_ways("ib_write_bw.ipv6")
def write_over_ipv6(pair):
    """Skipped where perftest asks the resolver for IPv4 only, as that of Debian 12."""
    pair.version = 1
    measure(pair, "ib_write_bw", *perftest.family("ib_write_bw", pair.address), size=65536)


add("rdma_server.one_message", rdma_server)
add("ucmatose.ipv4", ucmatose, directions=("to_siw",))


@both_ways("ucmatose.responder_first", directions=("from_siw",))
def ucmatose_responder_first(pair):
    """The accepting program sends first, and siw as a client asks for no peer-to-peer mode, so that
    Weft may not send (RFC 5044 section 7.1). The option lets it do so all the same."""
    pair.environment = RESPONDER_FIRST
    ucmatose(pair)
    ucmatose(pair, "-c", 4, "-C", 10, "-S", 4096)


@both_ways("ucmatose.says_why", directions=("from_siw",))
def ucmatose_says_why(pair):
    """Without the option Weft sends nothing, and names the ways out."""
    port = harness.free_port()
    server = pair.server(port, "ucmatose", "-p", port)
    client = pair.client("ucmatose", "-s", pair.address, "-p", port)
    server.expect("may not send first.*WEFT_RESPONDER_FIRST=1")
    pair.kill(server)
    client.finish(LIMIT_S, status=None)
