"""qperf, with connections made by rdma_cm (-cm 1), and without: then it knows LIDs only, which the
personality ib has."""

import json
import os
import pathlib

import cases
import harness
from harness import need

_HOST = "127.0.0.1"


def _peer_operations(stage):
    """What arrived at the server's device and was done in its memory, in all of its processes."""
    names = ("received", "peer_writes", "peer_reads")
    done = {name: 0 for name in names}
    for path in pathlib.Path(os.path.dirname(stage.scratch("stats.json"))).glob("stats.json*"):
        if path.stat().st_size == 0:
            continue  # of a process that did not use the device
        for pair in json.loads(path.read_text())["queue_pairs"]:
            for name in names:
                done[name] += pair[name]["operations"]
    return done


def _qperf(test, counter, *options, look="roce", same_host="auto"):
    def run(stage):
        port = harness.free_port()
        weft_options = ("--personality", look)
        server = stage.start("server", "qperf", "-lp", port, options=weft_options,
                             env={"WEFT_STATS": stage.scratch("stats.json"),
                                  "WEFT_SAME_HOST": same_host})
        server.await_listening(port)
        client = stage.start("client", "qperf", "-lp", port, *options, "-t", 1, _HOST, test,
                             options=weft_options, env={"WEFT_SAME_HOST": same_host})
        client.finish()
        stage.start("end", "qperf", "-lp", port, _HOST, "quit",
                    options=weft_options).finish()
        server.finish(status=None)
        stage.ran = stage.ran[:2]
        client.expect(r"^\s+((send_)?bw|latency|msg_rate)\s+=\s+\d")
        done = _peer_operations(stage)
        need(done[counter] >= 10, f"not on the device: {done}")
    return run


for _test, _counter in (("rc_bw", "received"), ("rc_lat", "received"),
                        ("rc_rdma_write_bw", "peer_writes"), ("rc_rdma_write_lat", "peer_writes"),
                        ("rc_rdma_read_bw", "peer_reads"), ("rc_rdma_read_lat", "peer_reads")):
    cases.add(f"qperf.{_test}", _qperf(_test, _counter, "-cm", 1))

# The client sends 64 MiB ahead, more than the server holds while it posts no receives.
cases.add("qperf.rc_bw_tcp", _qperf("rc_bw", "received", "-cm", 1, same_host="off"))

# A datagram of 1 KiB fits the packets of an Ethernet interface as well.
for _test, _counter, _options in (
        ("rc_bw", "received", ()), ("rc_lat", "received", ()), ("uc_bw", "received", ()),
        ("uc_lat", "received", ()), ("ud_bw", "received", ("-m", 1024)), ("ud_lat", "received", ()),
        ("rc_rdma_write_bw", "peer_writes", ()), ("rc_rdma_write_lat", "peer_writes", ()),
        ("rc_rdma_read_bw", "peer_reads", ()), ("rc_rdma_read_lat", "peer_reads", ())):
    cases.add(f"qperf.{_test}_by_lid", _qperf(_test, _counter, *_options, look="ib"))
