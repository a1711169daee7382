"""The programs of perftest, connected by rdma_cm (-R) or by GID and queue pair number."""

import re
import subprocess

import cases
import harness
from harness import need

BANDWIDTH = ("ib_send_bw", "ib_write_bw", "ib_read_bw")
LATENCY = ("ib_send_lat", "ib_write_lat", "ib_read_lat")
ATOMIC = ("ib_atomic_bw", "ib_atomic_lat")
ALL_SIZES = [1 << power for power in range(1, 24)]

# A line of results: bytes, iterations, and then numbers only. A deviation may be "-nan": perftest
# takes the root of a difference that rounding made negative. A time is "inf" if perftest could not
# measure how fast the processor's clock is, because other work disturbed it.
_RESULT = re.compile(r"^\s*(\d+)\s+(\d+)((?:\s+(?:[\d.]+|-?nan|inf)){3,})\s*$")


def results(side):
    """{bytes: [iterations, number, ...]} of the result lines."""
    found = {}
    for line in side.lines:
        match = _RESULT.match(line)
        if match:
            numbers = [float(word) for word in match.group(3).split()]
            found[int(match.group(1))] = [int(match.group(2)), *numbers]
    return found


def perftest(stage, program, address, *options, sizes, iterations=100, places=(None, None),
             weft_options=((), ()), within_s=harness.WAIT_S, rdma_cm=True):
    """A server, a client, and a line with numbers for each size."""
    port = harness.free_port()
    both = ["-F", "-p", port, "-n", iterations, *family(program, address), *options]
    if rdma_cm:
        both.append("-R")
    if program not in ATOMIC:  # they know one size
        both += ["-a"] if sizes == ALL_SIZES else ["-s", sizes[0]]
    server = stage.start("server", program, *both, options=weft_options[0], place=places[0])
    server.await_listening(port)
    client = stage.start("client", program, *both, address, options=weft_options[1],
                         place=places[1])
    client.finish(within_s)
    server.finish(within_s)
    need_results(client, sizes)
    for side in (client, server):
        harness.need_no_trouble(side)
    return server, client


def family(program, address):
    """The options for such an address. Older releases ask the resolver for IPv4 only."""
    if ":" not in address:
        return []
    done = subprocess.run([harness.installed(program), "--help"], capture_output=True, text=True,
                          check=False)
    if "--ipv6-addr" not in done.stdout + done.stderr:
        raise harness.Skip(f"this release of {program} knows IPv4 only; --ipv6-addr came later")
    return ["--ipv6-addr"]


def need_results(side, sizes):
    found = results(side)
    missing = [size for size in sizes if size not in found]
    need(not missing, f"{side.name} shows no result for {missing} bytes")
    # perftest multiplies by the frequency of its clock, and takes 0 where other programs have
    # disturbed its measurement of that: then it says so, and all speeds are 0.
    if any("Correlation coefficient" in line for line in side.lines):
        return
    for size in sizes:
        # Of the speeds of small messages, only their number a second does not round to 0.
        need(max(found[size][1:]) > 0, f"{side.name} shows no speed for {size} bytes")


def add(name, program, address, *options, sizes, **settings):
    iterations = settings.pop("iterations", 100)
    ways = {name: settings.pop(name) for name in ("rdma_cm", "weft_options") if name in settings}

    def run(stage):
        harness.need_address(address)
        perftest(stage, program, address, *options, sizes=sizes, iterations=iterations,
                 within_s=settings.get("timeout_s", 120) - 5, **ways)

    cases.add(f"{program}.{name}", run, **settings)


# On two cores, of which both programs spin on one each, a ping-pong takes as long as the scheduler
# leaves a spinning thread alone: some milliseconds. So the normal run has few of them.
_FEW, _SOME, _MANY = 20, 40, 1000


def add_loopback():
    for program in BANDWIDTH:
        add("ipv4", program, "127.0.0.1", sizes=ALL_SIZES)
        add("bidirectional", program, "127.0.0.1", "-b", sizes=ALL_SIZES, iterations=_SOME)
        add("four_queue_pairs", program, "127.0.0.1", "-q", 4, sizes=ALL_SIZES, iterations=_SOME)
        # As where the kernel does not let the processes reach each other's memory.
        staged = ("--same-host", "staged", "--shared-heap", "off")
        add("staged", program, "127.0.0.1", "-b", sizes=ALL_SIZES, iterations=_SOME,
            weft_options=(staged, staged))
    for program in LATENCY:
        add("ipv4", program, "127.0.0.1", sizes=ALL_SIZES, iterations=_FEW, sanitized=True)
    for program in BANDWIDTH + LATENCY:
        add("ipv6", program, "::1", sizes=[65536])
    for program in ("ib_read_bw", "ib_send_lat", "ib_read_lat"):
        add("events", program, "127.0.0.1", "-e", sizes=ALL_SIZES, iterations=_FEW)
    # Towards an iWARP device ib_send_bw counts credits, which the server writes into the client's
    # memory: no event tells of them. A client that sleeps until one comes sleeps for ever if it has
    # sent all it may before the first credit. Eight megabytes and a completion for each message
    # take long enough for the credits.
    add("events", "ib_send_bw", "127.0.0.1", "-e", "-Q", 1, sizes=[1 << 23])


def add_raw(name, program, *options, sizes, **settings):
    """Without rdma_cm: the programs tell each other GID and number over a socket of their own."""
    add(f"raw_{name}", program, "127.0.0.1", *options, sizes=sizes, rdma_cm=False, **settings)


def add_without_rdma_cm():
    for program in BANDWIDTH:
        add_raw("all_sizes", program, sizes=ALL_SIZES)
        add_raw("bidirectional", program, "-b", sizes=[65536])
        add_raw("eight_queue_pairs", program, "-q", 8, sizes=[65536])
    for program in LATENCY:
        add_raw("all_sizes", program, sizes=ALL_SIZES, iterations=_FEW)
    for operation in ("CMP_AND_SWAP", "FETCH_AND_ADD"):
        add_raw(operation.lower(), "ib_atomic_bw", "-A", operation, sizes=[8])
        add_raw(operation.lower(), "ib_atomic_lat", "-A", operation, sizes=[8], iterations=_FEW)
    add_raw("events", "ib_send_bw", "-e", sizes=ALL_SIZES, iterations=_FEW)
    add_raw("events", "ib_send_lat", "-e", sizes=[64], iterations=_FEW)
    add_raw("shared_receives", "ib_send_bw", "--use-srq", sizes=[65536])
    for program in ("ib_send_bw", "ib_write_bw", "ib_send_lat", "ib_write_lat"):
        add_raw("inline", program, "-I", 64, sizes=[64], iterations=_FEW)


def add_unreliable():
    """A server posts all its receives first: without them, messages would be dropped."""
    uc = ("-c", "UC")
    for program in ("ib_send_bw", "ib_write_bw"):
        add_raw("uc", program, *uc, sizes=[65536])
        add_raw("uc_two_queue_pairs", program, *uc, "-q", 2, sizes=[4096])
    add_raw("uc_all_sizes", "ib_write_bw", *uc, sizes=ALL_SIZES, iterations=_FEW)
    for program in ("ib_send_lat", "ib_write_lat"):
        add_raw("uc", program, *uc, sizes=ALL_SIZES, iterations=_FEW)


def add_extended():
    """XRC: the receiving queue pairs have shared receive queues only."""
    xrc = ("-c", "XRC")
    for program in BANDWIDTH:
        add_raw("xrc", program, *xrc, sizes=[65536])
    add_raw("xrc_all_sizes", "ib_send_bw", *xrc, sizes=ALL_SIZES, iterations=_FEW)
    add_raw("xrc_four_queue_pairs", "ib_send_bw", *xrc, "-q", 4, sizes=[65536])
    add_raw("xrc_bidirectional", "ib_send_bw", *xrc, "-b", sizes=[65536])
    add_raw("xrc_events", "ib_send_bw", *xrc, "-e", sizes=[65536])
    add_raw("xrc", "ib_send_lat", *xrc, sizes=[64], iterations=_FEW)
    add_raw("xrc", "ib_atomic_bw", *xrc, sizes=[8])


def add_personalities():
    """rdma_cm works whatever the device looks like, and whatever the other end looks like."""
    iwarp, roce = ("--personality", "iwarp"), ("--personality", "roce")
    for program in BANDWIDTH + LATENCY:
        add("iwarp", program, "127.0.0.1", sizes=[65536], iterations=_FEW,
            weft_options=(iwarp, iwarp))
    add("iwarp_server_roce_client", "ib_write_lat", "127.0.0.1", sizes=[65536], iterations=_FEW,
        weft_options=(iwarp, roce))


def add_long():
    for program in BANDWIDTH:
        add("bidirectional_ipv6", program, "::1", "-b", sizes=ALL_SIZES, long=True)
        add("four_queue_pairs_bidirectional", program, "127.0.0.1", "-q", 4, "-b",
            sizes=ALL_SIZES, long=True, timeout_s=300)
    for program in BANDWIDTH + LATENCY:
        add("many_iterations", program, "127.0.0.1", sizes=ALL_SIZES, iterations=_MANY, long=True,
            timeout_s=1800)


add_loopback()
add_without_rdma_cm()
add_unreliable()
add_extended()
add_personalities()
add_long()
