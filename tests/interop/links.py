"""A slower network under programs of others: `weft run --link`. Times have lower bounds only."""

import json
import pathlib
import re
import signal
import time

import cases
import harness
import tshark
from harness import need

LATE = ["--link", "latency=20ms,seed=1"]
TWICE_S = 0.04  # an answer crosses the link of one side in both directions


def counters(path):
    return json.loads(pathlib.Path(path).read_text())


def pair(stage, program, *arguments, host=("127.0.0.1",), options=(), server_options=()):
    port = harness.free_port()
    both = [*arguments, "-p", port]
    server = stage.start("server", program, *both, options=server_options)
    server.await_listening(port)
    client = stage.start("client", program, *both, *host, options=options)
    client.finish()
    server.finish()
    return server, client


def _latency(program, *arguments):
    def run(stage):
        path = stage.scratch("counters.json")
        _, client = pair(stage, program, "-F", "-n", 10, "-s", 64, *arguments,
                         options=[*LATE, "--stats", path])
        typical = [float(each.split()[4]) for each in client.output.splitlines()
                   if re.match(r"\s*64\s+10\s", each)]
        need(typical, f"no result:\n{client.output}")
        # perftest divides the time of an exchange by two, except for Reads.
        least_us = TWICE_S * 1e6 / (1 if "read" in program else 2)
        need(typical[0] >= least_us, f"{typical[0]} us are less than {least_us}")
        found = counters(path)
        need(found["link"]["latency_ns"] == 20_000_000 and found["link"]["seed"] == 1,
             f"{found['link']}")
        need(found["link"]["delayed_bytes"] > 1000, f"{found['link']}")
        need(found["queue_pairs"][0]["carrier_reason"] == "a link delays TCP connections",
             f"{found['queue_pairs']}")

    return run


cases.add("links.ib_write_lat", _latency("ib_write_lat"))
cases.add("links.ib_send_lat", _latency("ib_send_lat"))
cases.add("links.ib_read_lat", _latency("ib_read_lat"))
cases.add("links.ib_send_lat_events", _latency("ib_send_lat", "-e"))


@cases.case("links.rping")
def rping(stage):
    """Each of rping's rounds is four messages, one after the other."""
    port = harness.free_port()
    server = stage.start("server", "rping", "-s", "-p", port, "-C", 5, "-v")
    server.await_listening(port)
    begin = time.monotonic()
    client = stage.start("client", "rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", 5, "-v",
                         options=LATE)
    client.finish()
    server.finish()
    need(time.monotonic() - begin >= 5 * TWICE_S, "the network was not slow")


@cases.case("links.rc_pingpong")
def rc_pingpong(stage):
    begin = time.monotonic()
    pair(stage, "ibv_rc_pingpong", "-g", 0, "-n", 10, "-c", options=LATE, server_options=LATE)
    need(time.monotonic() - begin >= 10 * 2 * TWICE_S, "the network was not slow")


@cases.case("links.ud_pingpong")
def ud_pingpong(stage):
    """Also where a side exits right after its last datagram."""
    begin = time.monotonic()
    pair(stage, "ibv_ud_pingpong", "-g", 0, "-n", 10, options=LATE, server_options=LATE)
    need(time.monotonic() - begin >= 10 * 2 * TWICE_S, "the network was not slow")


@cases.case("links.ud_loss")
def ud_loss(stage):
    """A program that waits for each datagram waits for ever for a lost one, as on any network."""
    port = harness.free_port()
    path = stage.scratch("counters.json")
    both = ["-g", 0, "-p", port, "-n", 1000]
    server = stage.start("server", "ibv_ud_pingpong", *both)
    server.await_listening(port)
    client = stage.start("client", "ibv_ud_pingpong", *both, "127.0.0.1",
                         options=["--link", "loss-stall=20%,seed=1", "--stats", path])
    client.expect("WEFT_LINK slows")  # from here on it handles the signal
    end = time.monotonic() + harness.WAIT_S
    while True:
        need(time.monotonic() < end, "nothing was lost")
        client.signal(signal.SIGUSR2)  # writes the statistics
        time.sleep(0.02)
        found = harness.json_of(path)
        if found and found["link"]["lost_datagrams"] > 0:
            break
    stage.forget(client)
    stage.forget(server)


@cases.case("links.rate")
def rate(stage):
    """16 MiB at 160 Mbit/s take 0.8 seconds."""
    begin = time.monotonic()
    pair(stage, "ib_write_bw", "-F", "-n", 16, "-s", 1 << 20, "-t", 4,
         options=["--link", "rate=160mbit"])
    need(time.monotonic() - begin >= 0.8, "the network was not slow")


@cases.case("links.stall")
def stall(stage):
    path, capture = stage.scratch("counters.json"), stage.scratch("client.pcapng")
    begin = time.monotonic()
    pair(stage, "ib_write_bw", "-F", "-n", 10, "-s", 14480, "-t", 1,
         options=["--link", "loss-stall=5%,seed=2", "--stats", path, "--capture", capture])
    spent_s = time.monotonic() - begin
    stalls = counters(path)["link"]["stalls"]
    need(stalls >= 1, "no segment was lost")
    need(spent_s >= 0.2, f"{stalls} stalls in {spent_s} s")
    noted = tshark.fields(capture, "frame.comment", "frame.comment")
    need(noted and "the link has lost" in noted[0][0], f"the capture notes {noted}")


@cases.case("links.bandwidth")
def bandwidth(stage):
    """Much data arrives unchanged through a link that delays it."""
    pair(stage, "ib_send_bw", "-F", "-n", 100, "-s", 1 << 16,
         options=["--link", "latency=100us,jitter=100us,rate=10gbit"])


@cases.case("links.mistakes")
def mistakes(stage):
    """A wrong list ends the command before the program starts, and shows the place."""
    side = stage.start("program", "ibv_devices", options=["--link", "latency=50us,rate=fast"])
    side.finish(status=2)
    need("  latency=50us,rate=fast\n                    ^" in side.output, side.output)
