"""librpma, for remote access to persistent memory, by a program of ours that compares data."""

import json
import os
import pathlib

import cases
import harness
from harness import need

_HOST = "127.0.0.1"


def _transfer(look):
    def run(stage):
        program = harness.companion("rpma_peer")
        if not os.path.exists(program):
            raise harness.Skip("librpma-dev is missing")
        port = harness.free_port()
        statistics = stage.scratch("stats.json")
        options = ("--personality", look)
        server = stage.start("server", program, "serve", _HOST, port, options=options,
                             env={"WEFT_STATS": statistics})
        server.expect("^listens$")
        client = stage.start("client", program, "ask", _HOST, port, options=options)
        for side in (client, server):
            side.finish()
            side.expect("all data is right")
        pair = json.loads(pathlib.Path(statistics).read_text())["queue_pairs"][0]
        for name in ("peer_writes", "peer_reads", "received"):
            need(pair[name]["operations"] > 0, f"no {name} on the device")
    return run


for _look in ("roce", "iwarp"):
    cases.add(f"librpma.{_look}", _transfer(_look))
