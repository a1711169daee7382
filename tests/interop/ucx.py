"""ucx_info and ucx_perftest of UCX, which take the device for a RoCE adapter, without a setting of
the device or of UCX's that an adapter would not need."""

import json
import pathlib
import re

import cases
import harness
from harness import need


@cases.case("ucx_info.lists_the_device")
def ucx_info(stage):
    """UCX ignores a device without a character device below /dev/infiniband."""
    harness.need_ucx_transports()
    side = stage.start("ucx_info", "ucx_info", "-d")
    side.finish()
    for transport in ("rc_verbs", "ud_verbs"):
        need(re.search(rf"Transport: {transport}\s+#\s+Device: weft0:1", side.output),
             f"no {transport} on weft0")


def _operations(path):
    """What the server received and what was done in its memory, by type of queue pair."""
    found = {"RC": 0, "UD": 0}
    for pair in json.loads(pathlib.Path(path).read_text())["queue_pairs"]:
        counts = ("received", "peer_writes", "peer_reads", "peer_atomics")
        found[pair["type"]] += sum(pair[name]["operations"] for name in counts)
    return found


def _perftest(test, transports, size, kind, count=200, layer=(), stats=None):
    def run(stage):
        """A program that finds no device uses something else and passes, so the device's own
        counters decide."""
        harness.need_ucx_transports()
        port = harness.free_port()
        path = stats or stage.scratch("stats.json")
        env = {"UCX_TLS": transports} if transports else {}
        common = ("-p", port, "-t", test, "-s", str(size), "-n", str(count), "-w", "10", *layer)
        # Where it was built with MPI, it takes itself for a process of MPI without a terminal.
        server = stage.start("server", "ucx_perftest", *common, env={**env, "WEFT_STATS": path},
                             terminal=True)
        server.await_listening(port)
        client = stage.start("client", "ucx_perftest", "127.0.0.1", *common, env=env,
                             terminal=True)
        client.finish()
        server.finish()
        need(re.search(rf"^Final:\s+{count}\s", client.output, re.MULTILINE), "no result")
        done = _operations(path)
        need(done[kind] >= count, f"not on the device: {done}")
    return run


for _test in ("tag_lat", "tag_bw", "put_lat", "get", "add", "am_lat"):
    _name = {"put_lat": "ucp_put_lat", "get": "ucp_get", "add": "ucp_add",
             "am_lat": "ucp_am_lat"}.get(_test, _test)
    cases.add(f"ucx_perftest.rc_{_test}", _perftest(_name, "rc_v,ud_v,self", 8, "RC"))
cases.add("ucx_perftest.rc_tag_lat_long",
          _perftest("tag_lat", "rc_v,ud_v,self", 65536, "RC", count=50))


@cases.case("ucx_perftest.rc_tag_lat_rendezvous")
def rendezvous(stage):
    """A MiB is announced by a small Send, fetched by one RDMA Read, and acknowledged by a small
    Send. Nothing of it waits for a receive or for credits."""
    path = stage.scratch("rendezvous.json")
    count = 50
    _perftest("tag_lat", "rc_v,ud_v,self", 2**20, "RC", count=count, stats=path)(stage)
    pairs = json.loads(pathlib.Path(path).read_text())["queue_pairs"]
    (used,) = [pair for pair in pairs if pair["reads"]["operations"] > 0]
    # UCX warms up by some transfers, and tells the results by others.
    for reads in (used["reads"], used["peer_reads"]):
        need(count <= reads["operations"] <= 2 * count, f"{reads} for {count} transfers")
        need(reads["bytes"] == reads["operations"] * 2**20, f"not a MiB each: {reads}")
    need(used["sends"]["bytes"] < 2**20, f"sent as messages: {used['sends']}")
    waits = {name: used[name] for name in ("rnr_waits", "credit_waits")}
    need(not any(waits.values()), f"the transfers have waited: {waits}")


cases.add("ucx_perftest.ud_tag_lat", _perftest("tag_lat", "ud_v,self", 8, "UD"))
cases.add("ucx_perftest.ud_tag_bw", _perftest("tag_bw", "ud_v,self", 4096, "UD"))
# The lower layer of UCX, which uses one transport and nothing else.
for _transport in ("rc", "ud"):
    for _test in ("am_lat", "am_bw"):
        cases.add(f"ucx_perftest.{_transport}_verbs_{_test}",
                  _perftest(_test, None, 8, _transport.upper(),
                            layer=("-x", f"{_transport}_verbs", "-d", "weft0:1")))
