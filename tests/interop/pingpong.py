"""ibv_rc_pingpong and its likes, from ibverbs-utils: connect by GID and QPN."""

import re

import cases
import harness
from harness import need

_PINGS = 1000


def pingpong(stage, *arguments, program="ibv_rc_pingpong", count=_PINGS, places=(None, None),
             address="127.0.0.1", options=(), by_lid=False):
    """Both sides must reach the end and count what they sent. by_lid: without a GID."""
    port = harness.free_port()
    both = ["-p", port, "-n", count, *arguments]
    ib = ("--personality", "ib") if by_lid else ()
    if not by_lid:
        both = ["-g", 0, *both]
    options = (*options, *ib)
    server = stage.start("server", program, *both, place=places[0], options=ib)
    server.await_listening(port)
    client = stage.start("client", program, *both, address, place=places[1], options=options)
    for side in (client, server):
        side.finish()
        need(re.search(rf"^{count} iters in ", side.output, re.MULTILINE),
             f"{side.name} did not count {count} iterations")
        harness.need_no_trouble(side)
        need("invalid data" not in side.output, f"{side.name} received something else")


def _case(*options, **settings):
    return lambda stage: pingpong(stage, *options, **settings)


cases.add("ibv_rc_pingpong.polling", _case(), sanitized=True)
cases.add("ibv_rc_pingpong.events", _case("-e"))
cases.add("ibv_rc_pingpong.contents", _case("-c", "-s", 65536, count=200))
cases.add("ibv_rc_pingpong.small", _case("-c", "-s", 1))
cases.add("ibv_rc_pingpong.large", _case("-c", "-s", 4 << 20, count=20))
cases.add("ibv_rc_pingpong.one_receive", _case("-r", 1, count=200))
cases.add("ibv_rc_pingpong.largest_mtu", _case("-m", 4096, count=200))
cases.add("ibv_rc_pingpong.timestamps", _case("-t"))
cases.add("ibv_rc_pingpong.new_send", _case("-N", "-c"))
cases.add("ibv_rc_pingpong.new_send_events", _case("-N", "-e"))
cases.add("ibv_rc_pingpong.on_demand", _case("-o", "-c"))
cases.add("ibv_rc_pingpong.on_demand_prefetched", _case("-o", "-P", "-c"))
cases.add("ibv_rc_pingpong.device_memory", _case("-j", "-c"))
cases.add("ibv_uc_pingpong.polling", _case(program="ibv_uc_pingpong"))
cases.add("ibv_uc_pingpong.events", _case("-e", program="ibv_uc_pingpong"))
cases.add("ibv_uc_pingpong.large", _case("-s", 1 << 20, program="ibv_uc_pingpong", count=50))
cases.add("ibv_srq_pingpong.polling", _case(program="ibv_srq_pingpong"))
cases.add("ibv_srq_pingpong.events", _case("-e", program="ibv_srq_pingpong"))
cases.add("ibv_srq_pingpong.one_queue_pair", _case("-q", 1, program="ibv_srq_pingpong"))


def extended_pingpong(stage, *arguments, by_lid=False):
    """XRC. The program compares no data, as Xrc.* and pyverbs' tests do, and prints one word."""
    port = harness.free_port()
    both = ["-p", port, *([] if by_lid else ["-g", 0]), *arguments]
    options = ("--personality", "ib") if by_lid else ()
    server = stage.start("server", "ibv_xsrq_pingpong", *both, options=options)
    server.await_listening(port)
    client = stage.start("client", "ibv_xsrq_pingpong", *both, "127.0.0.1", options=options)
    for side in (client, server):
        side.finish()
        need(re.search("^success", side.output, re.MULTILINE), f"{side.name} did not succeed")
        harness.need_no_trouble(side)


cases.add("ibv_xsrq_pingpong.polling", lambda stage: extended_pingpong(stage, "-n", 200))
cases.add("ibv_xsrq_pingpong.events", lambda stage: extended_pingpong(stage, "-n", 200, "-e"))
cases.add("ibv_xsrq_pingpong.by_lid",
          lambda stage: extended_pingpong(stage, "-n", 200, by_lid=True))


@cases.case("ibv_rc_pingpong.needs_a_gid")
def needs_a_gid(stage):
    """Without -g there is no address: RoCE refuses the address vector, and so does the device."""
    port = harness.free_port()
    server = stage.start("server", "ibv_rc_pingpong", "-p", port)
    server.await_listening(port)
    client = stage.start("client", "ibv_rc_pingpong", "-p", port, "127.0.0.1")
    server.finish(status=1)
    client.finish(status=1)
    need("Failed to modify QP to RTR" in server.output, "the server does not say why")
    need("weft: an address vector without a GID" in server.output, "the remedy is not named")
    need("--personality ib" in server.output, "the personality that works is not named")
