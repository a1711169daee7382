"""What the programs of rdmacm-utils and perftest say to each other, with one of them on siw."""

import re

import harness
import perftest
import rdmacm_utils
from harness import need
from pairs import LIMIT_S

_ITERATIONS = 20
RESPONDER_FIRST = {"WEFT_RESPONDER_FIRST": "1"}


def rping(pair, *options, count=20):
    """The data is verified on both sides, and each must show each ping."""
    port = harness.free_port()
    both = ["-a", pair.address, "-p", port, "-C", count, "-v", "-V", *options]
    server = pair.server(port, "rping", "-s", *both)
    client = pair.client("rping", "-c", *both)
    rdmacm_utils.finish_rping(client, LIMIT_S)
    rdmacm_utils.finish_rping(server, LIMIT_S)
    rdmacm_utils.need_pings(client, "ping data:", count)
    rdmacm_utils.need_pings(server, "server ping data:", count)


def endless_rping(pair):
    """The two sides of an rping whose pings have begun: (the one on Weft, the one on siw)."""
    port, many = harness.free_port(), 1000000
    both = ["-a", pair.address, "-p", port, "-C", many, "-v", "-V"]
    server = pair.server(port, "rping", "-s", *both)
    client = pair.client("rping", "-c", *both)
    server.expect("^server ping data:")
    client.expect("^ping data:")
    return (client, server) if pair.to_siw else (server, client)


def rdma_server(pair):
    port = harness.free_port()
    own = ["-s", pair.address] if pair.version else []  # its default is an address of IPv4
    server = pair.server(port, "rdma_server", *own, "-p", port)
    client = pair.client("rdma_client", "-s", pair.address, "-p", port)
    for side in (client, server):
        side.finish(LIMIT_S)
        need(re.search(r"^rdma_(client|server): end 0$", side.output, re.MULTILINE),
             f"{side.name} does not say 'end 0'")


def ucmatose(pair, *options):
    port = harness.free_port()
    own = ["-b", pair.address] if pair.version else []  # as that of rdma_server
    server = pair.server(port, "ucmatose", *own, "-p", port, *options)
    client = pair.client("ucmatose", "-s", pair.address, "-p", port, *options)
    for side in (client, server):
        side.finish(LIMIT_S)
        need(re.search(r"^return status 0\s*$", side.output, re.MULTILINE),
             f"{side.name} does not end with 'return status 0'")


# Linux 6.1's siw fails a request whose bytes it has sent, if the peer closes the connection at that
# moment (siw_qp_sq_proc_tx). perftest's last message, its good-bye, meets this: the program on siw
# then ends with 1, after it has printed its results.
_GOOD_BYE = re.compile(r"Failed to close connection between server and client")


def finish_perftest(side):
    status = side.finish(LIMIT_S, status=None)
    on_siw = side.name.endswith("on siw")
    need(status == 0 or on_siw and _GOOD_BYE.search(side.output),
         f"{side.name} ended with {harness.ending(status)}")
    if on_siw:  # its complaint about the good-bye may end the line with the results
        side.lines = [line.partition("Bad wc status")[0] for line in side.lines]


def measure(pair, program, *options, size, iterations=_ITERATIONS):
    """One run of a program of perftest; the client's results must be there."""
    port = harness.free_port()
    both = ["-F", "-R", "-p", port, "-n", iterations, "-s", size, *options]
    server = pair.server(port, program, *both)
    client = pair.client(program, *both, pair.address)
    finish_perftest(client)
    finish_perftest(server)
    perftest.need_results(client, [size])
