"""Which row of the GID table programs select, and that each row works.

By default there are two rows of one address: RoCE v1 at index 0, v2 at index 1. WEFT_GIDS=all adds
two rows for each other address of the host.
"""

import ipaddress
import re

import cases
import harness
import perftest as perf
from harness import need

_ROW = re.compile(r"GID\[\s*(\d+)\]:\s+(\S+), (RoCE v[12])")
_ALL = {"WEFT_GIDS": "all"}
_BYTES = 512  # fits into a datagram
_MOST_ROWS = 10  # of a host with many addresses


def _rows(stage, env):
    """[(index, address, type)] as ibv_devinfo prints them."""
    side = stage.start("ibv_devinfo", "ibv_devinfo", "-v", env=env)
    side.finish()
    found = [(int(index), ipaddress.IPv6Address(gid), kind)
             for index, gid, kind in _ROW.findall(side.output)]
    need([row[0] for row in found] == list(range(len(found))), f"rows are missing: {found}")
    need(len(found) >= 2, f"not two rows: {found}")
    return found


def _exchange(stage, program, server_options=(), client_options=(), env=None):
    """A short run, connected by GID and number. Returns what the two sides printed."""
    port = harness.free_port()
    both = ("-F", "-p", port, "-n", 20, "-s", _BYTES)
    server = stage.start("server", program, *both, *server_options, env=env)
    server.await_listening(port)
    client = stage.start("client", program, *both, *client_options, "127.0.0.1", env=env)
    for side in (client, server):
        side.finish()
        harness.need_no_trouble(side)
        stage.forget(side)
    perf.need_results(client, [_BYTES])  # not each server prints any
    return server, client


def _selected(side):
    found = re.search(r"GID index\s*:\s*(\d+)", side.output)
    need(found, f"{side.name} prints no GID index")
    return int(found[1])


def _perftest(program, server, client, expected, *more):
    """Index None: the program selects by itself."""
    def run(stage):
        options = [more if index is None else ("-x", index, *more) for index in (server, client)]
        sides = _exchange(stage, program, *options)
        indexes = tuple(_selected(side) for side in sides)
        need(indexes == expected, f"server and client selected {indexes}, not {expected}")
    return run


# What perftest selects by itself is the first row of RoCE v2 with an IPv4 address.
for _program, _more in (("ib_write_bw", ()), ("ib_send_lat", ()), ("ib_send_bw", ("-c", "UD"))):
    _prefix = f"{_program}.{'datagrams_' if _more else ''}gid_index_"
    cases.add(_prefix + "default", _perftest(_program, None, None, (1, 1), *_more))
    cases.add(_prefix + "0", _perftest(_program, 0, 0, (0, 0), *_more))
    cases.add(_prefix + "1", _perftest(_program, 1, 1, (1, 1), *_more))
    cases.add(_prefix + "0_and_1", _perftest(_program, 0, 1, (0, 1), *_more))


@cases.case("ib_write_bw.gid_index_beyond_the_table")
def beyond(stage):
    port = harness.free_port()
    server = stage.start("server", "ib_write_bw", "-F", "-p", port)
    server.await_listening(port)
    client = stage.start("client", "ib_write_bw", "-F", "-p", port, "-x", 2, "127.0.0.1")
    client.finish(status=None)
    need(client.process.returncode > 0, f"ended with {harness.ending(client.process.returncode)}")


def _addresses(kind):
    """Runs perftest over each row whose address is of this kind."""
    def run(stage):
        rows = [row for row in _rows(stage, _ALL) if kind(row[1])]
        if not rows:
            raise harness.Skip("this host has no such address")
        for index, address, _ in rows[:_MOST_ROWS]:
            for program in ("ib_write_bw", "ib_read_lat"):
                sides = _exchange(stage, program, ("-x", index), ("-x", index), _ALL)
                need(all(_selected(side) == index for side in sides),
                     f"another row than {index}, {address}")
    return run


def _is_global_ipv6(address):
    return not (address.ipv4_mapped or address.is_link_local or address.is_loopback)


cases.add("ib_write_bw.gids_of_ipv4", _addresses(lambda address: address.ipv4_mapped),
          timeout_s=240)
cases.add("ib_write_bw.gids_of_ipv6", _addresses(_is_global_ipv6),
          timeout_s=240)
cases.add("ib_write_bw.gids_of_ipv6_loopback", _addresses(lambda address: address.is_loopback),
          timeout_s=240)
cases.add("ib_write_bw.gids_of_link_local", _addresses(lambda address: address.is_link_local),
          timeout_s=240)


@cases.case("ibv_rc_pingpong.every_gid", timeout_s=240)
def every_gid(stage):
    """The server's row and the client's are of one address; which type they are is the same."""
    for index, address, _ in _rows(stage, _ALL)[:_MOST_ROWS]:
        port, other = harness.free_port(), index ^ 1
        server = stage.start("server", "ibv_rc_pingpong", "-g", index, "-p", port, "-n", 50, "-c",
                             env=_ALL)
        server.await_listening(port)
        client = stage.start("client", "ibv_rc_pingpong", "-g", other, "-p", port, "-n", 50, "-c",
                             "127.0.0.1", env=_ALL)
        for side in (client, server):
            side.finish()
            need("50 iters in" in side.output, f"rows {index} and {other} of {address}")
            harness.need_no_trouble(side)
            stage.forget(side)


def _ucx(wanted, expected, more):
    """UCX names the row in its debug messages. It needs both RC and UD of it."""
    def run(stage):
        harness.need_ucx_transports()
        port = harness.free_port()
        env = {"UCX_TLS": "rc_v,ud_v,self", "UCX_LOG_LEVEL": "debug", **more}
        if wanted is not None:
            env["UCX_IB_GID_INDEX"] = str(wanted)
        common = ("-p", port, "-t", "tag_lat", "-s", 8, "-n", 100, "-w", 10)
        server = stage.start("server", "ucx_perftest", *common, env=env, terminal=True)
        server.await_listening(port)
        client = stage.start("client", "ucx_perftest", "127.0.0.1", *common, env=env,
                             terminal=True)
        for side in (client, server):
            side.finish()
            if "UCX  DEBUG" not in side.output:
                raise harness.Skip("this build of UCX has no debug messages")
            selected = set(re.findall(r"\bsgid_index=(\d+)", side.output))
            need(selected == {str(expected)}, f"{side.name} uses rows {selected}, not {expected}")
        need(re.search(r"^Final:\s+100\s", client.output, re.MULTILINE), "no result")
    return run


cases.add("ucx_perftest.gid_index_default", _ucx(None, 1, {}))
cases.add("ucx_perftest.gid_index_default_of_all", _ucx(None, 1, _ALL))
cases.add("ucx_perftest.gid_index_0", _ucx(0, 0, {}))
cases.add("ucx_perftest.gid_index_1", _ucx(1, 1, {}))
